"""Minimal random coding of Bernoulli vectors: a number a block, from which both ends make the same sample.

M. Havasi, R. Peharz, J. Hernández-Lobato, "Minimal random code learning", ICLR 2019; as used by BiCompFL,
arXiv:2502.00206. The encoder knows a posterior q and the prior p, the decoder p alone, and both the seed of n_IS
candidate vectors drawn from p. The encoder sends the number of a candidate chosen with probability proportional to
its importance weight q(x) / p(x): ceil(log2 n_IS) bits a block, however long it is. What is decoded follows q as long
as the block's KL divergence stays below about ln(n_IS) / 2 nats; above, it is pulled towards q only part of the way.

On a CPU this runs compiled by numba, on a GPU by Triton where it is installed, else as `reference.py`. Given the same
log odds, indices are the same bit for bit whichever it is; two devices may differ in the last bit of a logarithm, so in
the log odds and, rarely, in an index. What is decoded is the same everywhere.

Shape legend: M senders, P priors (1 or M), S streams (1 or M), D entries, n of a piece, B blocks, R = n_s repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from fedcomp.compressor.mrc import reference
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import Candidates
from fedcomp.compressor.mrc.fixed_point import fraction_bits, log_odds
from fedcomp.random.keys import has_triton

PIECE = 1 << 16
"""Coordinates that a CPU works on at once, so that what is made of them stays in its cache."""
Map = Callable[[Callable[[Any], Any], Any], Iterable[Any]]
"""`map`, or one that spreads the pieces over threads: kernels let go of the interpreter's lock."""


def encode(
    q: Tensor,
    thresholds: Tensor,
    blocks: Blocks,
    candidates: Candidates,
    noise_keys: Tensor,
    repetitions: int = 1,
    clamp: float = 0.01,
    spread: Map = map,
) -> Tensor:
    """Choose candidates for posteriors.

    Args:
        q: [M, D] float32 probabilities; clamped to [c, 1 - c].
        thresholds: [P, D] integer priors, T / 2^b.
        blocks: of these D coordinates.
        candidates: to choose among; with one stream and one prior, all senders are scored in one pass over them.
        noise_keys: [M, 2] int64 words, the key of each encoder's private noise.
        repetitions: R independent choices a block. clamp: c. spread: runs the pieces.
    Returns:
        [M, R, B] candidate numbers.
    """
    fraction = fraction_bits(blocks.longest)
    chosen = torch.zeros(len(q), repetitions, blocks.num, dtype=torch.int32, device=q.device)

    def work(piece: tuple[slice, Blocks]) -> None:
        at, some = piece
        here = slice(some.begin - blocks.begin, some.end - blocks.begin)
        prior = thresholds[:, here]
        steps = log_odds(q[:, here], prior, candidates.bits, clamp, fraction)
        chosen[:, :, at] = _encode(q.device)(steps, prior, some, candidates, noise_keys, repetitions, fraction)

    if candidates.num > 1 and chosen.numel():
        for _ in spread(work, list(_pieces(blocks, q.device))):
            pass
    return chosen.to(candidates.index_type)


def decode(
    indices: Tensor,
    thresholds: Tensor,
    blocks: Blocks,
    candidates: Candidates,
    total: bool = False,
    spread: Map = map,
) -> Tensor:
    """[M, D] int32 counts 0, ..., R of ones in what indices [M, R, B] stand for; with `total` [1, D], their sum."""
    device = indices.device
    counts = torch.zeros(1 if total else len(indices), blocks.dim, dtype=torch.int32, device=device)

    def work(piece: tuple[slice, Blocks]) -> None:
        at, some = piece
        here = slice(some.begin - blocks.begin, some.end - blocks.begin)
        _decode(device)(indices[:, :, at], thresholds[:, here], some, candidates, counts[:, here])

    if indices.numel():
        for _ in spread(work, list(_pieces(blocks, device))):
            pass
    return counts


def _pieces(blocks: Blocks, device: torch.device) -> Iterable[tuple[slice, Blocks]]:
    """All at once on a GPU, where cutting would read offsets back."""
    return blocks.pieces(max(1, PIECE // blocks.longest) if device.type == "cpu" else max(1, blocks.num))


def _encode(device: torch.device) -> Callable[..., Tensor]:
    if device.type == "cpu":
        from fedcomp.compressor.mrc import cpu

        return cpu.encode
    if has_triton(device):
        from fedcomp.compressor.mrc import gpu

        return gpu.encode
    return reference.encode


def _decode(device: torch.device) -> Callable[..., None]:
    if device.type == "cpu":
        from fedcomp.compressor.mrc import cpu

        return cpu.decode
    if has_triton(device):
        from fedcomp.compressor.mrc import gpu

        return gpu.decode
    return reference.decode
