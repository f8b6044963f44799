"""Conversions between integers, bytes and bits on the device that holds them.

Bits are uint8 of zeros and ones; bits and bytes are ordered most significant first. On a CPU these functions use NumPy,
whose instructions for them are 2 to 7 times as fast as torch's operations. Elsewhere they use torch, which has no
operations on single bits: eight bits are handled as the eight bytes of an int64. A table has the bits of every byte,
and a product collects them,

    sum_i b_i 2^(8 i) x sum_j 2^(9 j) = ... + 2^56 sum_i b_i 2^(7 - i) + ...,   terms below 2^56 do not carry.

No function synchronises with the device, except `nonzero_indices`. Shape legend: n bytes, words or integers of `width`
bits or `size` bytes; m bits.
"""

import functools
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

assert sys.byteorder == "little", "the product takes the first of eight bytes as the lowest"

WORD = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""{bytes: integer type}."""
_COLLECT = sum(1 << (9 * j) for j in range(8)) - (1 << 64)
_BLOCK = 1 << 15
"""Integers per block on a CPU, so that intermediate results stay in its cache."""
UNSIGNED = {1: torch.uint8, 2: torch.int32, 4: torch.int64, 8: torch.int64}
"""{bytes: type that holds unsigned integers of that size}; for eight bytes modulo 2^64."""


def unpack_bits(packed: Tensor) -> Tensor:
    """[8 n] the bits of bytes [n]."""
    if on_host(packed):
        return torch.from_numpy(np.unpackbits(packed.numpy()))
    return _table(packed.device).index_select(0, packed.to(torch.int32)).view(torch.uint8)


def pack_bits(bits: Tensor) -> Tensor:
    """[ceil(m / 8)] the bytes of bits [m]; the last is padded with zeros."""
    if on_host(bits):
        return torch.from_numpy(np.packbits(bits.numpy()))
    padded = torch.nn.functional.pad(bits, (0, -bits.shape[0] % 8))
    return (as_words(padded, 8) * _COLLECT).bitwise_right_shift_(56).to(torch.uint8)


def nonzero_indices(bits: Tensor) -> Tensor:
    """[number of ones] int64 indices of the ones among bits (or booleans) [m]; synchronises to read their number."""
    if on_host(bits):
        return torch.from_numpy(np.flatnonzero(bits.numpy().view(np.bool_)))
    return bits.nonzero()[:, 0]


def byteswapped(words: Tensor) -> Tensor:
    """Integers [n] with their bytes reversed, from the machine's order to the wire's and back."""
    if on_host(words):
        return torch.from_numpy(words.numpy().byteswap())
    return words.view(torch.uint8).view(-1, words.element_size()).flip(1).view(words.dtype)[:, 0]


def as_words(packed: Tensor, size: int) -> Tensor:
    """The same memory as integers of `size` bytes; a copy if it is not aligned."""
    aligned = packed if packed.storage_offset() % size == 0 else packed.clone()
    return aligned.view(WORD[size])


def on_host(data: Tensor) -> bool:
    """Whether NumPy is used: on non-empty CPU tensors (torch does not accept the strides of an empty NumPy array)."""
    return data.device.type == "cpu" and data.numel() > 0


@functools.cache
def _table(device: torch.device) -> Tensor:
    """[256] int64 whose bytes are the bits of each byte."""
    values, places = torch.arange(256, device=device), torch.arange(7, -1, -1, device=device)
    return (values[:, None] >> places & 1).to(torch.uint8).view(torch.int64)[:, 0]


def bits_of(numbers: Tensor, width: int) -> Tensor:
    """[n width] the lowest `width` bits of each of the integers [n]."""
    size = word_size(width)
    if width == 8 * size:
        return unpack_bits(bytes_of(numbers, size))
    bits = numbers.new_empty((numbers.shape[0], width), dtype=torch.uint8)
    for part in blocks(numbers):
        bits[part] = unpack_bits(bytes_of(numbers[part], size)).view(-1, 8 * size)[:, 8 * size - width :]
    return bits.view(-1)


def integers_of(bits: Tensor, width: int, num: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """[n] the `num` integers of `width` bits each, at most 63, as `dtype`, from bits [n width]."""
    size = word_size(width)
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
    held = word_size(8 * size)
    packed = byteswapped(numbers.to(WORD[held])).view(torch.uint8)
    return packed if held == size else packed.view(-1, held)[:, held - size :].reshape(-1)


def unsigned_of(packed: Tensor, size: int) -> Tensor:
    """[n] the integers in bytes [n size], with the type in UNSIGNED."""
    held = word_size(8 * size)
    if held > size:
        packed = torch.nn.functional.pad(packed.view(-1, size), (held - size, 0)).view(-1)
    numbers = byteswapped(as_words(packed, held)).to(UNSIGNED[held])
    return numbers.bitwise_and_((1 << 8 * held) - 1) if held in (2, 4) else numbers


def float_of(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """[n] the IEEE floats in bytes [n size]."""
    return byteswapped(as_words(packed, dtype.itemsize)).view(dtype)


def word_size(width: int) -> int:
    """Bytes of the smallest word that holds `width` bits."""
    return next(size for size in WORD if width <= 8 * size)


def blocks(rows: Tensor) -> Iterator[slice]:
    """Slices of the rows: blocks on a CPU, all rows elsewhere."""
    num = rows.shape[0]
    step = _BLOCK if on_host(rows) else max(num, 1)
    for start in range(0, num, step):
        yield slice(start, min(start + step, num))
