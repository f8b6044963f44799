"""What shows whether minimal random coding codes a posterior or merely damps it.

A block whose KL divergence exceeds ln n_IS cannot be coded with n_IS candidates: the importance weights freeze on the
best few, and what is decoded moves from p to q only part of the way. That starts at about half of it.

Shape legend: M senders, P priors (1 or M), D entries, B blocks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedcomp.compressor.mrc import reference
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import Candidates
from fedcomp.compressor.mrc.fixed_point import fraction_bits, log_odds
from fedcomp.compressor.mrc.thresholds import probability


def kl_divergence(q: Tensor, thresholds: Tensor, bits: int, clamp: float = 0.01) -> Tensor:
    """[M, D] float32 nats q ln(q / p) + (1 - q) ln((1 - q) / (1 - p)), of clamped posteriors against T / 2^b [P, D]."""
    q = q.clamp(clamp, 1 - clamp)
    p = probability(thresholds, bits).clamp_(2.0**-24, 1 - 2.0**-24)
    each = q * (q / p).log_() + (1 - q) * ((1 - q) / (1 - p)).log_()
    return each.clamp_(min=0.0)


def share_above(kl: Tensor, num_candidates: int) -> Tensor:
    """[M] share of blocks, whose divergences are kl [M, B] nats, above the capacity ln n_IS."""
    return (kl > math.log(num_candidates)).to(torch.float32).mean(1)


def effective_sample_size(
    q: Tensor, thresholds: Tensor, blocks: Blocks, candidates: Candidates, clamp: float = 0.01, num_blocks: int = 32
) -> Tensor:
    """[M] 1 / sum_i W_i^2, the sum averaged over some blocks: n_IS candidates are as good as this many drawn from q.

    Its inverse is the chance that two senders of one posterior choose the same of their shared candidates.
    Weights are made anew, by the reference, for `num_blocks` consecutive blocks around the middle (all, if there are
    not more): a measurement beside the coding, which never holds a weight.
    """
    low = max(0, (blocks.num - num_blocks) // 2)
    some = blocks.part(low, min(low + num_blocks, blocks.num))
    here = slice(some.begin - blocks.begin, some.end - blocks.begin)
    fraction = fraction_bits(blocks.longest)
    steps = log_odds(q[:, here], thresholds[:, here], candidates.bits, clamp, fraction)
    sizes = []
    for row in range(len(q)):
        prior = thresholds[row % len(thresholds), here]
        scores = reference.scores(steps[row : row + 1], prior, some, candidates, row, 0)[0]
        weights = torch.softmax(scores.to(torch.float64) * 2.0**-fraction, 0)
        sizes.append(1.0 / weights.square().sum(0).mean())
    return torch.stack(sizes).to(torch.float32) if sizes else q.new_zeros(0)


def polarisation(probability: Tensor) -> Tensor:
    """[...] share of the masks' variance that is gone, 1 - mean of 4 theta (1 - theta), over the last axis."""
    return 1 - 4 * (probability * (1 - probability)).mean(-1)


def saturation(counts: Tensor, num: int) -> Tensor:
    """[...] share of entries, over the last axis, whose counts of `num` samples are all or nothing."""
    return ((counts == 0) | (counts == num)).to(torch.float32).mean(-1)
