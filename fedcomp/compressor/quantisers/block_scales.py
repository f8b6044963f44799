"""Blocks of a vector that share a scale (its parameter tensors, or the whole of it), and signs and levels in its units.

Shape legend: M senders, D entries, L blocks.
"""

from typing import Literal

import torch
from torch import Tensor

from fedcomp.wire import Payload, SharedKnowledge

Granularity = Literal["layer", "model"]
"""layer: one block for each parameter tensor; model: one for the whole vector."""
MOST_LEVELS = 1 << 23
"""The largest s of which a float32 holds all 2 s + 1 levels."""


def block_sizes(granularity: str, common: SharedKnowledge) -> list[int]:
    """Entries of each of the L blocks."""
    return list(common.layers) if granularity == "layer" else [common.dim]


def largest_block(granularity: str, layers: tuple[int, ...]) -> int:
    """Entries of the largest block of a vector with parameter tensors of these sizes."""
    return max(layers) if granularity == "layer" else sum(layers)


def multiply_(x: Tensor, factors: Tensor, sizes: list[int]) -> Tensor:
    """x [M, D] *= factors [M, L], each repeated over its block, in place."""
    for part, factor in zip(x.split(sizes, dim=1), factors.unbind(1), strict=True):
        part.mul_(factor[:, None])
    return x


def block_norms(x: Tensor, sizes: list[int], order: float) -> Tensor:
    """[M, L] p-norms of the blocks of x [M, D], p = `order`; infinity is the largest magnitude."""
    return torch.stack([torch.linalg.vector_norm(part, order, dim=1) for part in x.split(sizes, dim=1)], 1)


def signs_times_scales(payload: Payload, value: float | None, granularity: str, common: SharedKnowledge) -> Tensor:
    """[M, D] +-a of a message with `signs` (1 for +) and the `scales` a of the blocks, or with a = `value` for all."""
    if value is not None:
        (signs,) = payload.expect(signs=common.dim)
        return (signs - 0.5).mul_(2.0 * value)
    sizes = block_sizes(granularity, common)
    signs, scales = payload.expect(signs=common.dim, scales=len(sizes))
    return multiply_(signs - 0.5, 2.0 * scales, sizes)


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
