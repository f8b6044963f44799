"""Which code computes minimal random coding: compiled kernels where they agree with `reference.py`, else that.

On a CPU they are compiled by numba, on a GPU by Triton.

Shape legend: M senders, B blocks, R repetitions, n coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from fedcomp.compressor.mrc import reference
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import Candidates
from fedcomp.core.accelerated import Form, code_of, is_safe
from fedcomp.random.keys import has_triton

KERNELS = Form("kernels of minimal random coding", "tensor operations")
TRIAL_BITS, TRIAL_ROWS = 1 << 18, 9
"""Candidate bits of a sender (one block at least) and senders of a trial; kernels take eight senders at once."""


def encode(
    log_odds: Tensor,
    thresholds: Tensor,
    blocks: Blocks,
    candidates: Candidates,
    noise_keys: Tensor,
    repetitions: int,
    fraction: int,
) -> Tensor:
    """[M, R, B] int32 chosen candidates; see `reference.encode`."""

    def trial(code: ModuleType) -> tuple[Tensor, ...]:
        some = _some(blocks, candidates)
        rows = log_odds[:TRIAL_ROWS, : some.dim], thresholds[:TRIAL_ROWS, : some.dim], some, _few(candidates)
        return (code.encode(*rows, noise_keys[:TRIAL_ROWS], repetitions, fraction),)

    code = _trusted(f"encoding with {candidates.bits} bits", log_odds.device, trial)
    chosen: Tensor = code.encode(log_odds, thresholds, blocks, candidates, noise_keys, repetitions, fraction)
    return chosen


def decode(indices: Tensor, thresholds: Tensor, blocks: Blocks, candidates: Candidates, out: Tensor) -> None:
    """Add the bits that indices [M, R, B] encode to out [M or 1, n] int32; see `reference.decode`."""

    def trial(code: ModuleType) -> tuple[Tensor, ...]:
        some, rows = _some(blocks, candidates), indices[:TRIAL_ROWS, :, :]
        found = out.new_zeros(1 if len(out) == 1 else len(rows), some.dim)
        code.decode(rows[:, :, : some.num], thresholds[:TRIAL_ROWS, : some.dim], some, _few(candidates), found)
        return (found,)

    code = _trusted(f"decoding with {candidates.bits} bits", indices.device, trial)
    code.decode(indices, thresholds, blocks, candidates, out)


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


def _some(blocks: Blocks, candidates: Candidates) -> Blocks:
    """The first blocks."""
    return blocks.part(0, min(blocks.num, max(1, TRIAL_BITS // (candidates.num * blocks.longest))))


def _few(candidates: Candidates) -> Candidates:
    """Those of the first senders."""
    return replace(candidates, keys=candidates.keys[:TRIAL_ROWS])
