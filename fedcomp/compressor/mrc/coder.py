"""Minimal random coding of Bernoulli vectors: one index per block, from which both ends compute the same sample.

M. Havasi, R. Peharz, J. Hernández-Lobato, "Minimal random code learning", ICLR 2019; as used by BiCompFL,
arXiv:2502.00206. The encoder knows a posterior q and the prior p, the decoder only p, and both know the seed of n_IS
candidate vectors drawn from p. The encoder chooses a candidate with probability proportional to its importance weight
q(x) / p(x) and sends its index: ceil(log2 n_IS) bits per block of any length. The decoded sample follows q while the
block's KL divergence is below about ln(n_IS) / 2 nats; above, its distribution lies between p and q.

`kernels.py` says which code runs. Given
the same log odds, all give the same indices bit for bit. Two devices may differ in the last bit of a logarithm, so in
the log odds and, rarely, in an index. Decoding gives the same bits everywhere.

Shape legend: M senders, P priors (1 or M), S streams (1 or M), D entries, n of a piece, B blocks, R = n_s repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from fedcomp.compressor.mrc import kernels
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import Candidates
from fedcomp.compressor.mrc.fixed_point import fraction_bits, log_odds

PIECE = 1 << 16
"""Coordinates per piece on a CPU, so that intermediate results stay in its cache."""
Map = Callable[[Callable[[Any], Any], Any], Iterable[Any]]
"""`map`, or a parallel map over threads: the kernels release Python's global lock (GIL)."""


def encode(
    q: Tensor,
    thresholds: Tensor,
    blocks: Blocks,
    candidates: Candidates,
    noise_keys: Tensor,
    repetitions: int = 1,
    clamp: float = 0.01,
    map_pieces: Map = map,
) -> Tensor:
    """Choose a candidate per block for posteriors.

    Args:
        q: [M, D] float32 probabilities; clamped to [c, 1 - c].
        thresholds: [P, D] integer priors, T / 2^b.
        blocks: of these D coordinates.
        candidates: to choose from; with one stream and one prior, one pass over them scores all senders.
        noise_keys: [M, 2] int64 words, the key of each encoder's private noise.
        repetitions: R independent choices per block. clamp: c. map_pieces: maps a function over pieces.
    Returns:
        [M, R, B] candidate indices.
    """
    fraction = fraction_bits(blocks.longest)
    chosen = torch.zeros(len(q), repetitions, blocks.num, dtype=torch.int32, device=q.device)

    def work(piece: tuple[slice, Blocks]) -> None:
        at, some = piece
        here = slice(some.begin - blocks.begin, some.end - blocks.begin)
        prior = thresholds[:, here]
        steps = log_odds(q[:, here], prior, candidates.bits, clamp, fraction)
        chosen[:, :, at] = kernels.encode(steps, prior, some, candidates, noise_keys, repetitions, fraction)

    if candidates.num > 1 and chosen.numel():
        for _ in map_pieces(work, list(_pieces(blocks, q.device))):
            pass
    return chosen.to(candidates.index_type)


def decode(
    indices: Tensor,
    thresholds: Tensor,
    blocks: Blocks,
    candidates: Candidates,
    total: bool = False,
    map_pieces: Map = map,
) -> Tensor:
    """[M, D] int32 number of ones in the R samples encoded by indices [M, R, B]; with `total` [1, D], summed over M."""
    device = indices.device
    counts = torch.zeros(1 if total else len(indices), blocks.dim, dtype=torch.int32, device=device)

    def work(piece: tuple[slice, Blocks]) -> None:
        at, some = piece
        here = slice(some.begin - blocks.begin, some.end - blocks.begin)
        kernels.decode(indices[:, :, at], thresholds[:, here], some, candidates, counts[:, here])

    if indices.numel():
        for _ in map_pieces(work, list(_pieces(blocks, device))):
            pass
    return counts


def _pieces(blocks: Blocks, device: torch.device) -> Iterable[tuple[slice, Blocks]]:
    """Pieces of blocks; one piece on a GPU, where splitting would synchronise to read offsets."""
    return blocks.pieces(max(1, PIECE // blocks.longest) if device.type == "cpu" else max(1, blocks.num))
