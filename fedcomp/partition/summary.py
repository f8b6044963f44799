"""Label counts and entropies of the clients of a partition, for logs and pictures.

Shape legend: N clients, C classes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def sizes(parts: Sequence[Tensor]) -> Tensor:
    """[N] int64: samples a client."""
    return torch.tensor([len(part) for part in parts])


def label_counts(parts: Sequence[Tensor], labels: Tensor, num_classes: int) -> Tensor:
    """[N, C] int64: samples of each class a client; labels is [n] int64 in [0, C)."""
    return torch.stack([torch.bincount(labels[part], minlength=num_classes) for part in parts])


def label_entropy(counts_NC: Tensor) -> Tensor:
    """[N] float64: entropy of each client's labels in nats, - sum_c p_c ln p_c; 0 for one class, ln C for all alike."""
    share_NC = counts_NC.double() / counts_NC.sum(1, keepdim=True)
    return 0.0 - torch.xlogy(share_NC, share_NC).sum(1)  # no negative zero


def entropy_in_words(counts_NC: Tensor) -> str:
    """One line: how mixed the clients' labels are, beside the labels of all of them together."""
    own, pooled = label_entropy(counts_NC), label_entropy(counts_NC.sum(0, keepdim=True)).item()
    mean, low, high = own.mean().item(), own.min().item(), own.max().item()
    return f"mean label entropy of a client {mean:.3f} nats ({low:.3f} to {high:.3f}); pooled {pooled:.3f}"
