"""Blocks of a vector that share a scale: its parameter tensors, or the whole of it.

Shape legend: M senders, D entries, L blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcomp.wire import SharedKnowledge

GRANULARITIES = ("layer", "model")
"""layer: one block for each parameter tensor; model: one for the whole vector."""


def block_sizes(granularity: str, common: SharedKnowledge) -> list[int]:
    """Entries of each of the L blocks."""
    return list(common.layers) if granularity == "layer" else [common.dim]


def multiply_(x: Tensor, factors: Tensor, sizes: list[int]) -> Tensor:
    """x [M, D] *= factors [M, L], each repeated over its block, in place."""
    for part, factor in zip(x.split(sizes, dim=1), factors.unbind(1), strict=True):
        part.mul_(factor[:, None])
    return x


def block_norms(x: Tensor, sizes: list[int], order: float) -> Tensor:
    """[M, L] p-norms of the blocks of x [M, D], p = `order`; infinity is the largest magnitude."""
    return torch.stack([torch.linalg.vector_norm(part, order, dim=1) for part in x.split(sizes, dim=1)], 1)
