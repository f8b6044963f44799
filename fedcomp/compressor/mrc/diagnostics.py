"""Diagnostics of the error of minimal random coding.

A block whose KL divergence exceeds ln n_IS cannot be coded with n_IS candidates: a few candidates have almost all of
the importance weight, and the distribution of the decoded sample lies between p and q. This begins at about half of ln
n_IS.

Shape legend: M senders, P priors (1 or M), D entries, B blocks.
"""

import math

import torch
from torch import Tensor

from fedcomp.compressor.mrc import reference
from fedcomp.compressor.mrc.candidates import Prior
from fedcomp.compressor.mrc.fixed_point import fraction_bits, log_odds
from fedcomp.compressor.mrc.thresholds import probability


def kl_divergence(q: Tensor, thresholds: Tensor, bits: int, clamp: float = 0.01) -> Tensor:
    """[M, D] float32 nats q ln(q / p) + (1 - q) ln((1 - q) / (1 - p)), of clamped posteriors against T / 2^b [P, D]."""
    q = q.clamp(clamp, 1 - clamp)
    p = probability(thresholds, bits).clamp_(2.0**-24, 1 - 2.0**-24)
    each = q * (q / p).log_() + (1 - q) * ((1 - q) / (1 - p)).log_()
    return each.clamp_(min=0.0)


def share_above(kl: Tensor, num_candidates: int) -> Tensor:
    """[M] fraction of blocks whose divergence kl [M, B], in nats, is above the capacity ln n_IS."""
    return (kl > math.log(num_candidates)).to(torch.float32).mean(1)


def effective_sample_size(q: Tensor, prior: Prior, clamp: float = 0.01, num_blocks: int = 32) -> Tensor:
    """[M] 1 / sum_i W_i^2, with the sum averaged over blocks: n_IS candidates are worth this many samples of q.

    Its inverse is the probability that two senders with one posterior choose the same shared candidate. The coder never
    stores weights, so the reference computes them again for `num_blocks` consecutive blocks around the middle.
    """
    low = max(0, (prior.blocks.num - num_blocks) // 2)
    some = prior.blocks.part(low, min(low + num_blocks, prior.blocks.num))
    own, fraction = prior.of(some), fraction_bits(prior.blocks.longest)
    steps = log_odds(q[:, prior.columns(some)], own.thresholds, own.candidates.bits, clamp, fraction)
    sizes = []
    for row in range(len(q)):
        scores = reference.scores(steps[row : row + 1], own, row, 0)[0]
        weights = torch.softmax(scores.to(torch.float64) * 2.0**-fraction, 0)
        sizes.append(1.0 / weights.square().sum(0).mean())
    return torch.stack(sizes).to(torch.float32) if sizes else q.new_zeros(0)


def polarisation(probability: Tensor) -> Tensor:
    """[...] 1 - mean of 4 theta (1 - theta) over the last axis: 0 for theta = 1/2, 1 for probabilities 0 and 1."""
    return 1 - 4 * (probability * (1 - probability)).mean(-1)
