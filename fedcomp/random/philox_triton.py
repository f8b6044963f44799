"""Kernels of keyed draws for GPUs: the words of `philox.py`, and what `keys.py` makes of them, in one launch each.

The words stay in registers; only the result is written to memory. Only integer operations, and one exact
conversion of 24 bits to float32, so every bit is that of the other devices.

Shape legend: M rows (clients), n draws a row, L = LANES counters of a program, four words each.
"""
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

CHANGING = ["low", "high", "num", "first", "tiles"]
"""Arguments that a kernel is not compiled anew for."""


@triton.jit(do_not_specialize=CHANGING)
def bits(keys, low, high, ids, out, num, first, tiles, KNOWN: tl.constexpr, LANES: tl.constexpr):
    """out [M, n] int64: `Key.bits` from counter `first` on; arguments as in `_make`."""
    made, row, tile = _make(keys, low, high, ids, first, tiles, KNOWN, LANES)
    place = tile * (4 * LANES) + tl.arange(0, 4 * LANES)
    tl.store(out + row * num + place, made.to(tl.int64), mask=place < num)


@triton.jit(do_not_specialize=CHANGING)
def uniform(keys, low, high, ids, out, num, first, tiles, KNOWN: tl.constexpr, LANES: tl.constexpr):
    """out [M, n] float32: `Key.uniform`."""
    made, row, tile = _make(keys, low, high, ids, first, tiles, KNOWN, LANES)
    place = tile * (4 * LANES) + tl.arange(0, 4 * LANES)
    chance = (made >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08  # 2^-24
    tl.store(out + row * num + place, chance, mask=place < num)


@triton.jit(do_not_specialize=CHANGING)
def rademacher(keys, low, high, ids, out, num, first, tiles, KNOWN: tl.constexpr, LANES: tl.constexpr):
    """out [M, n] float32: `Key.rademacher`, 32 of each word."""
    made, row, tile = _make(keys, low, high, ids, first, tiles, KNOWN, LANES)
    bits = (made[:, None] >> tl.arange(0, 32)[None, :].to(tl.uint32)) & 1
    place = tile * (128 * LANES) + tl.arange(0, 4 * LANES)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + row * num + place, bits.to(tl.float32) * 2.0 - 1.0, mask=place < num)


@triton.jit
def _make(keys, low, high, ids, first, tiles, KNOWN: tl.constexpr, LANES: tl.constexpr):
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
