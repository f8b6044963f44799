"""Gradients over all samples of a client, some samples at a time.

Shape legend: M clients of a chunk, D parameters, C running statistics.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from fedcomp.client.contract import GradFn, LocalData
from fedcomp.model.contract import Batch, Gradient

HELD_VALUES = 1 << 22
"""Input values of a chunk's clients up to which their data is gathered once, and not for each gradient again."""

Samples = Iterable[tuple[Tensor, Tensor, Tensor | None]]


def full_gradient(
    samples: Samples, num_samples: Tensor, theta: Tensor, stats: Tensor, step: int, grad_fn: GradFn
) -> Gradient:
    """Each client's mean gradient and loss over all of its samples; statistics move from one part to the next.

    Args:
        samples: mini-chunks of all clients' data; clients with fewer samples drop off the end.
        num_samples: [M] of each client. theta: [M, D]; stats: [M, C]. step, grad_fn: the hook and its step argument.
    """
    full, held = torch.zeros_like(theta), num_samples.to(theta.dtype)
    loss, stats = theta.new_zeros(theta.shape[0]), stats.clone() if stats.shape[1] else stats
    for x, y, weight in samples:
        rows = x.shape[0]
        part = grad_fn(theta[:rows], Batch(x, y, weight, stats[:rows]), step)
        taken = x.shape[1] if weight is None else weight.sum(1)
        share = taken / held[:rows]
        full[:rows] += part.grad * share[:, None]
        loss[:rows] += part.loss * share
        if stats.shape[1]:
            stats[:rows] = part.stats
    return Gradient(full, loss, stats)


def gather_once(data: LocalData, batch_size: int) -> Samples | None:
    """All samples if they are few enough to keep for every gradient, else None."""
    chunks, values = [], 0
    for chunk in data.samples(batch_size):
        chunks.append(chunk)
        values += chunk[0].numel()
        if values > HELD_VALUES:
            return None
    return chunks
