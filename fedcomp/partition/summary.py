"""What a partition gave to whom, for logs and pictures. Shape legend: N clients, C classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def sizes(parts: Sequence[Tensor]) -> Tensor:
    """[N] int64: samples a client."""
    return torch.tensor([len(part) for part in parts])


def label_counts(parts: Sequence[Tensor], labels: Tensor, num_classes: int) -> Tensor:
    """[N, C] int64: samples of each class a client; labels is [n] int64 in [0, C)."""
    return torch.stack([torch.bincount(labels[part], minlength=num_classes) for part in parts])


def labels_held(counts_NC: Tensor) -> Tensor:
    """[N] int64: distinct classes a client, from `label_counts`."""
    return (counts_NC > 0).sum(1)
