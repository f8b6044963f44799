"""Log odds and Gumbel noise in fixed point: scores are exact sums, the same in any order on every device.

Candidate i of a block has the importance weight w_i = prod_e (q/p)^X ((1-q)/(1-p))^(1-X). Up to a term that all
candidates share, log w_i = sum_e X[i, e] D_e with D = logit q - logit p. D is rounded to a multiple D' of 2^-F, which
exactly codes the posterior with logit q' = logit p + D'; its KL divergence from q is at most 2^-2F / 32 nats per
coordinate. F = 18 for blocks of up to 256 entries (1e-10 nats per block) and one less for each doubling, so that a
block's score stays below 2^30.

Shape legend: M senders, P priors (1 or M), D entries.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.mrc.thresholds import probability
from fedcomp.wire.coding import bits_for

RANGE = 16.0
"""Bound of |D| in nats; clamped probabilities stay below it."""
FINEST = 18
"""F of blocks of up to 256 entries, and of the table of Gumbel noise."""
OCTAVE = 8
"""Bits of the mantissa that choose an entry of the table; noise between two entries is interpolated linearly."""
ENTRIES = (31 << OCTAVE) + 2
"""Entries of one half of the table."""


def fraction_bits(longest: int) -> int:
    """F for blocks of at most `longest` entries."""
    return min(FINEST, 26 - bits_for(longest))


def log_odds(q: Tensor, thresholds: Tensor, bits: int, clamp: float, fraction: int) -> Tensor:
    """[M, D] int32 D 2^F of posteriors q [M, D], clamped to [c, 1 - c], against the priors of thresholds [P, D]."""
    prior = torch.logit(probability(thresholds, bits), eps=2.0**-24)
    bound = RANGE * 2.0**fraction
    if q.device.type != "cpu":
        steps = torch.logit(q, eps=clamp).sub_(prior).mul_(2.0**fraction)
        return steps.clamp_(-bound, bound).round_().to(torch.int32)
    rounded = torch.empty(q.shape, dtype=torch.int32, device=q.device)
    for row, entries in enumerate(q):  # a row is contiguous and stays in the cache
        steps = torch.logit(entries, eps=clamp).sub_(prior[row % len(prior)]).mul_(2.0**fraction)
        rounded[row] = steps.clamp_(-bound, bound).round_()
    return rounded


@lru_cache
def gumbel_table(device: torch.device) -> Tensor:
    """[2 ENTRIES] int32 -ln(-ln u) 2^FINEST at the nodes of `gumbel`.

    The first half is the upper tail, 1 - u = v, the second the lower, u = v, for v = t 2^-32 and t = (1 + j / 2^OCTAVE)
    2^k: evenly spaced within each octave, so that both tails are as fine as the middle.
    """
    node = np.arange(ENTRIES)
    v = np.ldexp(1.0 + (node % (1 << OCTAVE)) / (1 << OCTAVE), node // (1 << OCTAVE) - 32)
    upper = -np.log(-np.log1p(-np.minimum(v, 0.75)))
    lower = -np.log(-np.log(np.minimum(v, 0.75)))
    table = np.rint(np.concatenate((upper, lower)) * 2.0**FINEST).astype(np.int32)
    return torch.from_numpy(table).to(device, non_blocking=True)


def gumbel(words: Tensor, fraction: int) -> Tensor:
    """Gumbel noise 2^F, int64, from words of 32 bits of any shape.

    The top bit of a word chooses the tail, and the other bits are t. The exponent and the leading mantissa bits of t as
    a float32 are the index into the table, and the other mantissa bits the position between two entries.
    """
    table = gumbel_table(words.device).to(torch.int64)
    t = (words & 0x7FFFFFFF) | 1
    position = t.to(torch.float32).view(torch.int32).to(torch.int64) - 0x3F800000
    at = (position >> (23 - OCTAVE)) + (words >> 31) * ENTRIES
    low, rest = table[at], position & ((1 << (23 - OCTAVE)) - 1)
    return (low + ((table[at + 1] - low) * rest >> (23 - OCTAVE))) >> (FINEST - fraction)
