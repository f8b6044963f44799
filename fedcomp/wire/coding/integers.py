"""Integers to bits and bytes and back, on the device that holds them; nothing is read back.

Bits are uint8 of zeros and ones; bits and bytes stand most significant first.
Shape legend: n integers of `width` bits or `size` bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedcomp.wire.coding.packed_bytes import WORD, as_words, on_host, pack_bits, swapped, unpack_bits

_BLOCK = 1 << 15
"""Integers that a CPU handles at a time, so that what lies between two operations stays in its cache."""
UNSIGNED = {1: torch.uint8, 2: torch.int32, 4: torch.int64, 8: torch.int64}
"""Types that hold the unsigned integers of so many bytes (of eight: modulo 2^64)."""


def bits_of(numbers: Tensor, width: int) -> Tensor:
    """[n width] the lowest `width` bits of each of the integers [n]."""
    size = held_size(width)
    if width == 8 * size:
        return unpack_bits(bytes_of(numbers, size))
    bits = numbers.new_empty((numbers.shape[0], width), dtype=torch.uint8)
    for part in blocks(numbers):
        bits[part] = unpack_bits(bytes_of(numbers[part], size)).view(-1, 8 * size)[:, 8 * size - width :]
    return bits.view(-1)


def numbers_of(bits: Tensor, width: int, num: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """[n] the `num` integers of `width` bits each, 63 at most, that bits [n width] are; `dtype` holds them."""
    size = held_size(width)
    if width == 1:
        return bits.to(dtype)
    if width == 8 * size:
        return unsigned_of(pack_bits(bits), size).to(dtype)
    rows, numbers, skipped = bits.view(num, width), bits.new_empty(num, dtype=dtype), 8 * size - width
    wide = bits.new_zeros(max((part.stop - part.start for part in blocks(rows)), default=0), 8 * size)
    for part in blocks(rows):
        held = wide[: part.stop - part.start]
        held[:, skipped:] = rows[part]
        numbers[part] = unsigned_of(pack_bits(held.view(-1)), size)
    return numbers


def bytes_of(numbers: Tensor, size: int) -> Tensor:
    """[n size] the lowest `size` bytes of each of the integers [n]."""
    held = held_size(8 * size)
    packed = swapped(numbers.to(WORD[held])).view(torch.uint8)
    return packed if held == size else packed.view(-1, held)[:, held - size :].reshape(-1)


def unsigned_of(packed: Tensor, size: int) -> Tensor:
    """[n] the integers of which bytes [n size] are, as UNSIGNED holds them."""
    held = held_size(8 * size)
    if held > size:
        packed = torch.nn.functional.pad(packed.view(-1, size), (held - size, 0)).view(-1)
    numbers = swapped(as_words(packed, held)).to(UNSIGNED[held])
    return numbers.bitwise_and_((1 << 8 * held) - 1) if held in (2, 4) else numbers


def float_of(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """[n] the IEEE floats of which bytes [n size] are."""
    return swapped(as_words(packed, dtype.itemsize)).view(dtype)


def held_size(width: int) -> int:
    """Bytes of the smallest word that holds `width` bits."""
    return next(size for size in WORD if width <= 8 * size)


def blocks(rows: Tensor) -> Iterator[slice]:
    """All rows at once, or on a CPU block by block."""
    num = rows.shape[0]
    step = _BLOCK if on_host(rows) else max(num, 1)
    for start in range(0, num, step):
        yield slice(start, min(start + step, num))
