"""Stochastic rounding to evenly spaced levels in [-s, s], s levels being one scale.

Shape legend: M senders, D entries, L blocks with a scale of their own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcomp.compressor.quantisers.granularity import multiply_

MOST_LEVELS = 1 << 23
"""Of these, 2 s + 1 are told apart by a float32."""


def to_levels(x: Tensor, scales: Tensor, sizes: list[int], levels: int, uniform: Tensor) -> Tensor:
    """level + s of each entry, the level being floor(s x / scale + U): its mean is s x / scale.

    Args:
        x: [M, D] with |x| <= scale; what is beyond by rounding gets the outermost level.
        scales: [M, L]; where one is zero, so are the levels.
        sizes: entries of each block.
        levels: s.
        uniform: [M, D] U in [0, 1), overwritten.
    Returns:
        [M, D] integers in [0, 2 s] of the narrowest type.
    """
    ratios = levels / scales
    ratios = ratios.masked_fill_(ratios.isinf(), 0.0)
    for part, draws, ratio in zip(x.split(sizes, 1), uniform.split(sizes, 1), ratios.unbind(1), strict=True):
        draws.addcmul_(part, ratio[:, None])
    return uniform.floor_().clamp_(-levels, levels).add_(levels).to(_integer(2 * levels))


def from_levels(codes: Tensor, scales: Tensor, sizes: list[int], levels: int) -> Tensor:
    """[M, D] float32 scale * level / s."""
    return multiply_(codes - float(levels), scales / levels, sizes)


def _integer(largest: int) -> torch.dtype:
    return next(dtype for dtype in (torch.uint8, torch.int16, torch.int32) if largest <= torch.iinfo(dtype).max)
