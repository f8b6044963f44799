"""Codes of one width: unsigned integers and IEEE floats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.coding.contract import check_below, row_bits, take, to_row

FLOAT_WIDTH = {torch.float32: 32, torch.float16: 16, torch.bfloat16: 16, torch.float64: 64}
_CARRIER = {16: torch.int16, 32: torch.int32, 64: torch.int64}
_BLOCK = 1 << 16
"""Entries that are spread to bits at a time, so that what is laid out beside the message stays small."""


@dataclass(frozen=True)
class Unsigned:
    """Integers in [0, 2^width), most significant bit first.

    Attributes:
        width: bits an entry, at most 63.
        limit: entries are below it; None: below 2^width.
    """

    width: int
    limit: int | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.width <= 63, self.width

    def fixed_bits(self, num: int) -> int:
        return num * self.width

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return row_bits(data, count, self.width)

    def write(self, row: Tensor) -> np.ndarray:
        values, top = row.numpy(), 1 << self.width if self.limit is None else self.limit
        assert values.size == 0 or (values.min() >= 0 and values.max() < top), (
            f"entries from {values.min()} to {values.max()} do not fit in {self.width} bits below {top}"
        )
        if self.width == 1:
            return values.astype(np.uint8)
        size, skipped = _octets(self.width)
        bits = np.empty((values.size, self.width), np.uint8)
        for first in range(0, values.size, _BLOCK):
            octets = values[first : first + _BLOCK].astype(f">u{size}").view(np.uint8)
            bits[first : first + _BLOCK] = np.unpackbits(octets).reshape(-1, 8 * size)[:, skipped:]
        return bits.reshape(-1)

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        end = start + num * self.width
        values = self._values(take(bits, start, num * self.width), num)
        if self.limit is not None:
            check_below(values, self.limit)
        return to_row(values, dtype), end

    def _values(self, bits: np.ndarray, num: int) -> np.ndarray:
        """[num] unsigned integers of the narrowest type."""
        if self.width == 1:
            return bits
        size, skipped = _octets(self.width)
        rows, values = bits.reshape(num, self.width), np.empty(num, f"u{size}")
        spread = np.zeros((min(num, _BLOCK), 8 * size), np.uint8)
        for first in range(0, num, _BLOCK):
            block = rows[first : first + _BLOCK]
            spread[: len(block), skipped:] = block
            values[first : first + _BLOCK] = np.packbits(spread[: len(block)]).view(f">u{size}")
        return values


def _octets(width: int) -> tuple[int, int]:
    """(bytes of the narrowest integer that holds `width` bits, how many of its bits are above them)."""
    size = next(size for size in (1, 2, 4, 8) if width <= 8 * size)
    return size, 8 * size - width


@dataclass(frozen=True)
class Float:
    """IEEE floats of the given type, bit for bit."""

    dtype: torch.dtype = torch.float32

    @property
    def width(self) -> int:
        """Bits an entry."""
        return FLOAT_WIDTH[self.dtype]

    def fixed_bits(self, num: int) -> int:
        return num * self.width

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return row_bits(data, count, self.width)

    def write(self, row: Tensor) -> np.ndarray:
        assert row.dtype == self.dtype, f"entries are {row.dtype}, declared as {self.dtype}"
        words = row.contiguous().view(_CARRIER[self.width]).numpy()
        return np.unpackbits(words.byteswap().view(np.uint8))

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        size = self.width // 8
        words = np.packbits(take(bits, start, num * self.width)).view(f">i{size}").astype(f"=i{size}")
        return torch.from_numpy(words).view(self.dtype), start + num * self.width
