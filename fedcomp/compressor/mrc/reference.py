"""Minimal random coding as tensor operations on any device: the definition that the compiled kernels must match.

    encode:  a_i = sum over e in the block of X[i, e] D_e,   I = argmax_i (a_i + G_i),  G_i Gumbel noise (the first of
             equal ones), an exact draw from the normalised importance weights W_i = w_i / sum_j w_j
    decode:  X[I, e]

Everything is integer arithmetic (`fixed_point.py`), so all implementations and devices agree on every index.

Shape legend: M senders, C of them at once, n coordinates, B blocks, K = n_IS candidates, R repetitions.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import NOISE, Candidates, Prior, stretch, uniform
from fedcomp.compressor.mrc.fixed_point import gumbel

MAX_CANDIDATE_BITS = 1 << 22
"""Maximum number of candidate bits in memory, unless a single block has more."""


def scores(log_odds: Tensor, prior: Prior, row: int, repetition: int) -> Tensor:
    """[C, K, B] int64 a_i 2^F of senders with the stream and thresholds of sender `row`, for their log odds [C, n]."""
    candidates, blocks = prior.candidates, prior.blocks
    keys, thresholds = prior.of_row(row)
    sums_of_pieces = []
    for _, some in blocks.pieces(max(1, MAX_CANDIDATE_BITS // (candidates.num * blocks.longest))):
        here = prior.columns(some)
        ones = stretch(keys, candidates, repetition, some.begin, some.end) < thresholds[here].to(torch.int64)
        total = torch.zeros(len(log_odds), candidates.num, some.dim + 1, dtype=torch.int64, device=keys.device)
        for sums, steps in zip(total, log_odds[:, here]):
            sums[:, 1:] = (ones * steps.to(torch.int64)).cumsum(1)
        sums_of_pieces.append(total[:, :, some.offsets - some.begin].diff())
    return torch.cat(sums_of_pieces, 2)


def noise(noise_keys: Tensor, candidates: Candidates, repetition: int, blocks: Blocks, fraction: int) -> Tensor:
    """[M, K, B] int64 G_i 2^F: word b mod 4 of Philox(key; b >> 2, i, l, NOISE) for block b; noise_keys [M, 2]."""
    private = replace(candidates, bits=32, domain=NOISE)
    words = [
        stretch(noise_key, private, repetition, blocks.first, blocks.first + blocks.num) for noise_key in noise_keys
    ]
    return gumbel(torch.stack(words), fraction)


def encode(log_odds: Tensor, prior: Prior, noise_keys: Tensor, repetitions: int, fraction: int) -> Tensor:
    """[M, R, B] int32 chosen candidates; see `coder.encode`."""
    blocks, candidates = prior.blocks, prior.candidates
    first_of_equal = torch.arange(candidates.num - 1, -1, -1, device=log_odds.device)[:, None]
    chosen = log_odds.new_empty(len(log_odds), repetitions, blocks.num)
    shared = len(candidates.keys) == 1 and len(prior.thresholds) == 1
    step = len(log_odds) if shared else 1
    for repetition in range(repetitions):
        for row in range(0, len(log_odds), step):
            total = scores(log_odds[row : row + step], prior, row, repetition)
            total += noise(noise_keys[row : row + step], candidates, repetition, blocks, fraction)
            ranked = (total << 16) | first_of_equal  # ties go to the smaller index
            chosen[row : row + step, repetition] = candidates.num - 1 - (ranked.amax(1) & 0xFFFF).to(torch.int32)
    return chosen


def decode(indices: Tensor, prior: Prior, out: Tensor) -> None:
    """Add the bits that indices [M, R, B] encode to out [M or 1, n] int32; see `coder.decode`."""
    owner = prior.blocks.owner()
    coordinate = torch.arange(prior.blocks.begin, prior.blocks.end, device=indices.device)
    for row, numbers in enumerate(indices.to(torch.int64)):
        keys, thresholds = prior.of_row(row)
        for repetition, number in enumerate(numbers):
            drawn = uniform(keys[:, None], prior.candidates, repetition, number[owner], coordinate)
            out[row % len(out)] += drawn < thresholds.to(torch.int64)
