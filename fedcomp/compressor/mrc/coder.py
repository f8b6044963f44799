"""Minimal random coding of Bernoulli vectors: one index per block, from which both ends compute the same sample.

M. Havasi, R. Peharz, J. Hernández-Lobato, "Minimal random code learning", ICLR 2019; as used by BiCompFL,
arXiv:2502.00206. The encoder knows a posterior q and the prior p, the decoder only p, and both know the seed of n_IS
candidate vectors drawn from p. The encoder chooses a candidate with probability proportional to its importance weight
q(x) / p(x) and sends its index: ceil(log2 n_IS) bits per block of any length. The decoded sample follows q while the
block's KL divergence is below about ln(n_IS) / 2 nats; above, its distribution lies between p and q.

Compiled kernels run where they agree with `reference.py` (on a CPU numba's, on a GPU Triton's), else that. Given the
same log odds, all give the same indices bit for bit. Two devices may differ in the last bit of a logarithm, so in the
log odds and, rarely, in an index. Decoding gives the same bits everywhere.

Shape legend: M senders, D entries, n of a piece, B blocks, R = n_s repetitions.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fedcomp.compressor.mrc import reference
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import Prior
from fedcomp.compressor.mrc.fixed_point import fraction_bits, log_odds
from fedcomp.core.accelerated import Form, code_of, is_safe
from fedcomp.random.keys import has_triton

KERNELS = Form("kernels of minimal random coding", "tensor operations")
TRIAL_BITS, TRIAL_ROWS = 1 << 18, 9
"""Candidate bits of a sender (one block at least) and senders of a trial; kernels take eight senders at once."""
PIECE = 1 << 16
"""Coordinates per piece on a CPU, so that intermediate results stay in its cache."""
Map = Callable[[Callable[[Any], Any], Any], Iterable[Any]]
"""`map`, or a parallel map over threads: the kernels release Python's global lock (GIL)."""


def encode(
    q: Tensor, prior: Prior, noise_keys: Tensor, repetitions: int = 1, clamp: float = 0.01, map_pieces: Map = map
) -> Tensor:
    """Choose a candidate per block for posteriors.

    Args:
        q: [M, D] float32 probabilities; clamped to [c, 1 - c].
        prior: with one stream and one row of thresholds, one pass over the candidates scores all senders.
        noise_keys: [M, 2] int64 words, the key of each encoder's private noise.
        repetitions: R independent choices per block. clamp: c. map_pieces: maps a function over pieces.
    Returns:
        [M, R, B] candidate indices.
    """
    blocks, candidates = prior.blocks, prior.candidates
    fraction = fraction_bits(blocks.longest)
    chosen = torch.zeros(len(q), repetitions, blocks.num, dtype=torch.int32, device=q.device)

    def work(piece: tuple[slice, Blocks]) -> None:
        at, some = piece
        own = prior.of(some)
        steps = log_odds(q[:, prior.columns(some)], own.thresholds, candidates.bits, clamp, fraction)
        chosen[:, :, at] = choose(steps, own, noise_keys, repetitions, fraction)

    if candidates.num > 1 and chosen.numel():
        for _ in map_pieces(work, list(_pieces(blocks, q.device))):
            pass
    return chosen.to(candidates.index_type)


def decode(indices: Tensor, prior: Prior, total: bool = False, map_pieces: Map = map) -> Tensor:
    """[M, D] int32 number of ones in the R samples encoded by indices [M, R, B]; with `total` [1, D], summed over M."""
    device = indices.device
    counts = torch.zeros(1 if total else len(indices), prior.blocks.dim, dtype=torch.int32, device=device)

    def work(piece: tuple[slice, Blocks]) -> None:
        at, some = piece
        count(indices[:, :, at], prior.of(some), counts[:, prior.columns(some)])

    if indices.numel():
        for _ in map_pieces(work, list(_pieces(prior.blocks, device))):
            pass
    return counts


def choose(steps: Tensor, prior: Prior, noise_keys: Tensor, repetitions: int, fraction: int) -> Tensor:
    """[M, R, B] int32 candidates for the log odds of a piece [M, n]; see `reference.encode`."""

    def trial(code: ModuleType) -> tuple[Tensor, ...]:
        few = _trial(prior)
        rows = steps[:TRIAL_ROWS, : few.blocks.dim], few, noise_keys[:TRIAL_ROWS]
        return (code.encode(*rows, repetitions, fraction),)

    code = _trusted(f"encoding with {prior.candidates.bits} bits", steps.device, trial)
    chosen: Tensor = code.encode(steps, prior, noise_keys, repetitions, fraction)
    return chosen


def count(indices: Tensor, prior: Prior, out: Tensor) -> None:
    """Add the bits that a piece's indices [M, R, B] encode to out [M or 1, n] int32; see `reference.decode`."""

    def trial(code: ModuleType) -> tuple[Tensor, ...]:
        few, rows = _trial(prior), indices[:TRIAL_ROWS]
        found = out.new_zeros(1 if len(out) == 1 else len(rows), few.blocks.dim)
        code.decode(rows[:, :, : few.blocks.num], few, found)
        return (found,)

    code = _trusted(f"decoding with {prior.candidates.bits} bits", indices.device, trial)
    code.decode(indices, prior, out)


def _trusted(about: str, device: torch.device, trial: Callable[[ModuleType], tuple[Tensor, ...]]) -> ModuleType:
    """The device's kernels if they agree with the reference, else that."""
    kernels = kernels_on(device)
    if kernels is None or not KERNELS.agrees(about, partial(trial, kernels), partial(trial, reference)):
        return reference
    return kernels


def kernels_on(device: torch.device) -> ModuleType | None:
    """The compiled kernels of a device; None: there are none."""
    if is_safe():
        return None
    if device.type == "cpu":
        from fedcomp.compressor.mrc import cpu

        return cpu
    return code_of("fedcomp.compressor.mrc.triton_kernels") if has_triton(device) else None


def _trial(prior: Prior) -> Prior:
    """The first blocks and senders."""
    blocks, candidates = prior.blocks, prior.candidates
    some = blocks.part(0, min(blocks.num, max(1, TRIAL_BITS // (candidates.num * blocks.longest))))
    few = replace(prior.of(some), candidates=replace(candidates, keys=candidates.keys[:TRIAL_ROWS]))
    return replace(few, thresholds=few.thresholds[:TRIAL_ROWS])


def _pieces(blocks: Blocks, device: torch.device) -> Iterable[tuple[slice, Blocks]]:
    """Pieces of blocks; one piece on a GPU, where splitting would synchronise to read offsets."""
    return blocks.pieces(max(1, PIECE // blocks.longest) if device.type == "cpu" else max(1, blocks.num))
