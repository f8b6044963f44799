"""Keyed draws on GPUs: what `keys.py` asks for, handed to the kernels of `philox_triton.py`; nothing is read back."""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from fedcomp.random import philox_triton
from fedcomp.random.philox import MASK

LANES = {"bits": 256, "uniform": 256, "rademacher": 8}
"""Counters of a program, so that it fills 1,024 draws."""
TYPES = {"bits": torch.int64, "uniform": torch.float32, "rademacher": torch.float32}
PER_COUNTER = {"bits": 4, "uniform": 4, "rademacher": 128}
"""Draws that come from one counter."""


def draw(name: str, seed: int | Tensor, ids_M: Tensor, num: int, start: int) -> Tensor:
    """`Key.<name>(ids_M, num, start)` for the key whose 64 bits are `seed`, or whose two halves [2] int64 lie there."""
    out = torch.empty(ids_M.shape[0], num, dtype=TYPES[name], device=ids_M.device)
    if not out.numel():
        return out
    per_counter, lanes, ids = PER_COUNTER[name], LANES[name], ids_M.contiguous()
    tiles = triton.cdiv(num, per_counter * lanes)
    known = not isinstance(seed, Tensor)
    low, high = (_signed(seed & MASK), _signed(seed >> 32)) if isinstance(seed, int) else (0, 0)
    kernel: Any = getattr(philox_triton, name)
    kernel[(len(ids) * tiles,)](
        ids if known else seed, low, high, ids, out, num, start // per_counter, tiles, KNOWN=known, LANES=lanes
    )
    return out


def _signed(half: int) -> int:
    """A half as the int32 of the same bits, the type that the kernels are compiled for."""
    return half - (1 << 32) if half >> 31 else half
