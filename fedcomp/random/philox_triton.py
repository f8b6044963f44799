"""Triton kernels of the draws of `keys.py`, one launch each.

The words stay in registers; only the result is written to memory. The kernels use integer operations and one exact
conversion of 24 bits to float32, so the bits are those of the other devices. `draw` launches
them without synchronising with the device.

Shape legend: M rows (clients), n draws a row, L = LANES counters of a program, four words each.
"""
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedcomp.random.philox import MASK

CHANGING = ["low", "high", "num", "first", "tiles"]
"""Arguments whose values do not cause a recompilation."""
COUNTERS_PER_PROGRAM = {"bits": 256, "uniform": 256, "rademacher": 8}
"""A program makes 1,024 draws."""
TYPES = {"bits": torch.int64, "uniform": torch.float32, "rademacher": torch.float32}
DRAWS_PER_COUNTER = {"bits": 4, "uniform": 4, "rademacher": 128}


@triton.jit(do_not_specialize=CHANGING)
def bits(keys, low, high, ids, out, num, first, tiles, KNOWN: tl.constexpr, LANES: tl.constexpr):
    """out [M, n] int64: `Key.bits` from counter `first` on; arguments as in `_program_words`."""
    words, row, tile = _program_words(keys, low, high, ids, first, tiles, KNOWN, LANES)
    column = tile * (4 * LANES) + tl.arange(0, 4 * LANES)
    tl.store(out + row * num + column, words.to(tl.int64), mask=column < num)


@triton.jit(do_not_specialize=CHANGING)
def uniform(keys, low, high, ids, out, num, first, tiles, KNOWN: tl.constexpr, LANES: tl.constexpr):
    """out [M, n] float32: `Key.uniform`."""
    words, row, tile = _program_words(keys, low, high, ids, first, tiles, KNOWN, LANES)
    column = tile * (4 * LANES) + tl.arange(0, 4 * LANES)
    draws = (words >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08  # 2^-24
    tl.store(out + row * num + column, draws, mask=column < num)


@triton.jit(do_not_specialize=CHANGING)
def rademacher(keys, low, high, ids, out, num, first, tiles, KNOWN: tl.constexpr, LANES: tl.constexpr):
    """out [M, n] float32: `Key.rademacher`, 32 of each word."""
    words, row, tile = _program_words(keys, low, high, ids, first, tiles, KNOWN, LANES)
    bits = (words[:, None] >> tl.arange(0, 32)[None, :].to(tl.uint32)) & 1
    column = tile * (128 * LANES) + tl.arange(0, 4 * LANES)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + row * num + column, bits.to(tl.float32) * 2.0 - 1.0, mask=column < num)


@triton.jit
def _program_words(keys, low, high, ids, first, tiles, KNOWN: tl.constexpr, LANES: tl.constexpr):
    """The 4 L words [4 L] uint32 of one program, its row and its tile of the row.

    The key is (low, high), two halves of 32 bits, if it is KNOWN to the host; else `keys` points at them.
    """
    row, tile = (tl.program_id(0) // tiles).to(tl.int64), (tl.program_id(0) % tiles).to(tl.int64)
    seed = (low.to(tl.int64) & 0xFFFFFFFF) | (high.to(tl.int64) << 32)
    if not KNOWN:
        seed = tl.load(keys) | (tl.load(keys + 1) << 32)
    client = tl.load(ids + row)
    counter = first + tile * LANES + tl.arange(0, LANES)
    zero = counter * 0
    w0, w1, w2, w3 = tl.philox(
        seed, counter.to(tl.int32), zero.to(tl.int32), _half(zero + client), _half(zero + (client >> 32))
    )
    return tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3)), row, tile


@triton.jit
def _half(number):
    """The lower 32 bits."""
    return (number & 0xFFFFFFFF).to(tl.uint32).to(tl.int32, bitcast=True)


KERNELS = {"bits": bits, "uniform": uniform, "rademacher": rademacher}


def draw(name: str, seed: int | Tensor, ids_M: Tensor, num: int, start: int) -> Tensor:
    """`Key.<name>(ids_M, num, start)`, for a seed of 64 bits or for `DeviceKey.halves`."""
    out = torch.empty(ids_M.shape[0], num, dtype=TYPES[name], device=ids_M.device)
    if not out.numel():
        return out
    per_counter, lanes, ids = DRAWS_PER_COUNTER[name], COUNTERS_PER_PROGRAM[name], ids_M.contiguous()
    tiles = triton.cdiv(num, per_counter * lanes)
    known = not isinstance(seed, Tensor)
    low, high = (_signed(seed & MASK), _signed(seed >> 32)) if isinstance(seed, int) else (0, 0)
    kernel: Any = KERNELS[name]
    kernel[(len(ids) * tiles,)](
        ids if known else seed, low, high, ids, out, num, start // per_counter, tiles, KNOWN=known, LANES=lanes
    )
    return out


def _signed(half: int) -> int:
    """32 bits as the int32 with the same bits: the kernels are compiled for int32."""
    return half - (1 << 32) if half >> 31 else half
