"""How the entries of a field become bits: fixed-width integers, floats, Golomb-Rice codes.

A coding counts bits for all rows at once without writing any (`bits`), and writes and reads one row for the wire
(`write`, `read`). The two must agree to the bit, which `WireLink` checks on every message.
Shape legend: M rows (senders), n entries a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

FLOAT_WIDTH = {torch.float32: 32, torch.float16: 16, torch.bfloat16: 16, torch.float64: 64}
_CARRIER = {16: (torch.int16, np.uint16), 32: (torch.int32, np.uint32), 64: (torch.int64, np.uint64)}


class Coding(Protocol):
    """One way to write entries.

    Attributes:
        width: bits an entry, where every entry takes as many; None where it depends on the entry.
    """

    @property
    def width(self) -> int | None: ...

    def bits(self, data: Tensor) -> Tensor:
        """[M, n] int64 bits of each entry of data [M, n]."""
        ...

    def write(self, row: Tensor) -> np.ndarray:
        """The bits (uint8 of 0 and 1) of one row [n] on the CPU."""
        ...

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        """Read `num` entries from `bits[start:]`: the row [num] of `dtype`, and where the next field starts."""
        ...


def bits_for(num_values: int) -> int:
    """ceil(log2(num_values)): bits that tell `num_values` things apart."""
    return max(num_values - 1, 0).bit_length()


@dataclass(frozen=True)
class Unsigned:
    """Integers in [0, 2^width), most significant bit first."""

    width: int

    def bits(self, data: Tensor) -> Tensor:
        return torch.full_like(data, self.width, dtype=torch.int64)

    def write(self, row: Tensor) -> np.ndarray:
        values = row.to(torch.int64).numpy()
        assert values.size == 0 or (values.min() >= 0 and int(values.max()) >> self.width == 0), (
            f"entries up to {values.max()} do not fit in {self.width} bits"
        )
        shifts = np.arange(self.width - 1, -1, -1)
        return ((values[:, None] >> shifts) & 1).astype(np.uint8).reshape(-1)

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        end = start + num * self.width
        place = np.left_shift(np.int64(1), np.arange(self.width - 1, -1, -1))
        values = bits[start:end].reshape(num, self.width).astype(np.int64) @ place
        return torch.from_numpy(values).to(dtype), end


@dataclass(frozen=True)
class Float:
    """IEEE floats of the given type, bit for bit."""

    dtype: torch.dtype = torch.float32

    @property
    def width(self) -> int:
        return FLOAT_WIDTH[self.dtype]

    def bits(self, data: Tensor) -> Tensor:
        return torch.full_like(data, self.width, dtype=torch.int64)

    def write(self, row: Tensor) -> np.ndarray:
        assert row.dtype == self.dtype, f"entries are {row.dtype}, declared as {self.dtype}"
        carrier, unsigned = _CARRIER[self.width]
        words = row.contiguous().view(carrier).numpy().view(unsigned)
        return np.unpackbits(words.byteswap().view(np.uint8))

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        end = start + num * self.width
        carrier, unsigned = _CARRIER[self.width]
        words = np.packbits(bits[start:end]).view(unsigned).byteswap()
        signed = torch.from_numpy(words.view(f"i{self.width // 8}").copy())
        assert signed.dtype == carrier
        return signed.view(self.dtype), end


@dataclass(frozen=True)
class Rice:
    """Golomb-Rice codes of non-negative integers: v >> r in unary (ended by a one), then r low bits.

    Solomon Golomb, "Run-length encodings", 1966; Robert Rice, 1979. All unary parts come first, then all low bits.

    Attributes:
        parameter: r.
    """

    parameter: int
    width: None = None

    def bits(self, data: Tensor) -> Tensor:
        return (data.to(torch.int64) >> self.parameter) + (1 + self.parameter)

    def write(self, row: Tensor) -> np.ndarray:
        values = row.to(torch.int64).numpy()
        quotients = values >> self.parameter
        unary = np.zeros(int(quotients.sum()) + values.size, np.uint8)
        unary[np.cumsum(quotients + 1) - 1] = 1
        low = Unsigned(self.parameter).write(torch.from_numpy(values & ((1 << self.parameter) - 1)))
        return np.concatenate([unary, low])

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        ones = np.flatnonzero(bits[start:])[:num]
        quotients = np.diff(ones, prepend=-1) - 1
        after_unary = start + (int(ones[-1]) + 1 if num else 0)
        low, end = Unsigned(self.parameter).read(bits, after_unary, num, torch.int64)
        return ((torch.from_numpy(quotients) << self.parameter) | low).to(dtype), end

    @staticmethod
    def for_gaps(num: int, span: int) -> Rice:
        """The code with the smallest worst case for `num` gaps that sum to at most `span - num`."""
        best = min(range(bits_for(span) + 1), key=lambda r: Rice(r).worst_case(num, span))
        return Rice(best)

    def worst_case(self, num: int, span: int) -> int:
        """Most bits that `num` gaps with sum at most `span - num` can take: num (1 + r) + (span - num) // 2^r."""
        return num * (1 + self.parameter) + math.floor((span - num) / 2**self.parameter)
