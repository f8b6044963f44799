"""`reference.py` on GPUs: tensors handed to the kernels of `triton_kernels.py`; nothing is read back."""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import torch
import triton
from torch import Tensor

from fedcomp.compressor.mrc import triton_kernels
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.candidates import NOISE, Candidates
from fedcomp.compressor.mrc.fixed_point import ENTRIES, FINEST, OCTAVE, gumbel_table

MOST_COLUMNS = 16
"""Senders that one program scores against the same candidates."""
MOST_LANES = 256
"""Candidates that it scores at once."""
DECODED = 1024
"""Coordinates that one program decodes."""


def encode(
    log_odds: Tensor,
    thresholds: Tensor,
    blocks: Blocks,
    candidates: Candidates,
    noise_keys: Tensor,
    repetitions: int,
    fraction: int,
) -> Tensor:
    """[M, R, B] int32 chosen candidates; see `coder.encode`."""
    num_rows, dim = log_odds.shape
    chosen = torch.empty(num_rows, repetitions, blocks.num, dtype=torch.int32, device=log_odds.device)
    alike = len(candidates.keys) == 1 and len(thresholds) == 1
    columns = min(MOST_COLUMNS, triton.next_power_of_2(num_rows)) if alike else 1
    thresholds, noise_keys = thresholds.contiguous(), noise_keys.contiguous()
    triton_kernels.encode[(blocks.num, repetitions, triton.cdiv(num_rows, columns))](
        thresholds,
        log_odds.contiguous(),
        blocks.offsets,
        candidates.keys.contiguous(),
        noise_keys,
        gumbel_table(log_odds.device),
        chosen,
        num_rows,
        dim,
        blocks.begin,
        blocks.first,
        repetitions,
        blocks.num,
        dim if len(thresholds) > 1 else 0,
        2 if len(candidates.keys) > 1 else 0,
        candidates.domain,
        NOISE,
        FINEST - fraction,
        NUM=candidates.num,
        BITS=candidates.bits,
        COLUMNS=columns,
        LANES=min(MOST_LANES, triton.next_power_of_2(candidates.num)),
        OCTAVE=OCTAVE,
        ENTRIES=ENTRIES,
    )
    return chosen


def decode(indices: Tensor, thresholds: Tensor, blocks: Blocks, candidates: Candidates, out: Tensor) -> None:
    """Add the bits that indices [M, R, B] stand for to out [M or 1, n] int32; see `coder.decode`."""
    num_rows, repetitions, num_blocks = indices.shape
    assert out.is_contiguous()
    together = num_rows if len(out) == 1 else 1
    triton_kernels.decode[(triton.cdiv(blocks.dim, DECODED), len(out))](
        indices.contiguous(),
        thresholds.contiguous(),
        blocks.owner(),
        candidates.keys.contiguous(),
        out,
        together,
        blocks.dim,
        blocks.begin,
        repetitions,
        num_blocks,
        blocks.dim if len(thresholds) > 1 else 0,
        2 if len(candidates.keys) > 1 else 0,
        candidates.domain,
        BITS=candidates.bits,
        LANES=DECODED,
    )
