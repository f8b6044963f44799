"""Stochastic sign as a posterior for minimal random coding: BiCompFL-GR-CFL, arXiv:2502.00206.

    q_e = 1 / (1 + exp(-g_e / K)),   prior 1/2,   symbol +-1 = 2 bit - 1

K is never sent: a decoder sees bits. The paper names no K. `mean_abs`, the mean of |g|, makes blocks diverge by 25 to
30 nats for 256 entries, and `block_max`, KLMS's max |g| / 20 of each block, by up to 177: far above the capacity
ln n_IS, so that decoded signs follow g only weakly. `capacity` chooses K of each block so that, to second order,
its divergence sum_e (g_e / K)^2 / 8 is ln n_IS.

Shape legend: M senders, D entries, B blocks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.thresholds import TYPES

RULES = ("mean_abs", "block_max", "capacity")
KLMS_SHARE = 1 / 20
"""K of `block_max` in units of the block's largest |g|."""


def check_rule(name: str, rule: str | float) -> None:
    """Raise ValueError unless `rule` names a rule for K or is a positive number."""
    number = isinstance(rule, (int, float)) and not isinstance(rule, bool)
    if rule not in RULES and not (number and 0 < float(rule) < float("inf")):
        raise ValueError(f"{name}={rule} must be one of {', '.join(RULES)}, or K itself, a positive number")


def sign_posterior(g: Tensor, rule: str | float, blocks: Blocks, num_candidates: int = 256) -> Tensor:
    """[M, D] probability q of a plus sign for updates g [M, D]; 1/2 where g is zero."""
    scale = _scale(g, rule, blocks, num_candidates)
    return torch.sigmoid(torch.where(g == 0, 0.0, g / scale))


def signs(counts: Tensor, repetitions: int) -> Tensor:
    """float32 the mean of R decoded signs, (2 c - R) / R, from counts of ones."""
    return (2 * counts - repetitions).to(torch.float32) / repetitions


def even_prior(dim: int, bits: int, device: torch.device | str = "cpu") -> Tensor:
    """[1, D] thresholds of the prior 1/2."""
    return torch.full((1, dim), 1 << (bits - 1), dtype=TYPES[bits], device=device)


def _scale(g: Tensor, rule: str | float, blocks: Blocks, num_candidates: int) -> Tensor | float:
    """K, [M, 1] or [M, D]."""
    if rule == "mean_abs":
        return g.abs().mean(1, keepdim=True)
    if rule == "block_max":
        owner = blocks.owner().expand(g.shape)
        largest = g.new_zeros(len(g), blocks.num).scatter_reduce(1, owner, g.abs(), "amax")
        return largest.gather(1, owner) * KLMS_SHARE
    if rule == "capacity":
        capacity = 8 * math.log(max(num_candidates, 2))
        return (blocks.sums(g.square()) / capacity).sqrt().to(g.dtype).gather(1, blocks.owner().expand(g.shape))
    return float(rule)
