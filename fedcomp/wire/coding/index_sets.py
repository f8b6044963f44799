"""Codes of a set of indices: ascending numbers, one bit per index, or Golomb-Rice codes of the gaps between indices."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.wire.coding.contract import Coding, WireError, bits_for, check_within, row_bits, sum_sent, to_row
from fedcomp.wire.coding.fixed import Unsigned
from fedcomp.wire.coding.packed_bytes import bits_of, nonzero_indices


@dataclass(frozen=True)
class Ascending(Coding):
    """Distinct indices in [0, span) in ascending order, ceil(log2(span)) bits each."""

    span: int

    @property
    def width(self) -> int:
        """Bits per entry."""
        return bits_for(self.span)

    def fixed_bits(self, num: int) -> int:
        return num * self.width

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return row_bits(data, count, self.width)

    def check(self, row: Tensor) -> None:
        check_within(row, 0, self.span)
        self._check_order(row)

    def write(self, row: Tensor) -> Tensor:
        return Unsigned(self.width, self.span).write(row)

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        row, end = Unsigned(self.width, self.span).read(bits, start, num, dtype)
        self._check_order(row)
        return row, end

    def _check_order(self, row: Tensor) -> None:
        if (row[1:] <= row[:-1]).any():
            raise WireError("indices that are not in ascending order")


@dataclass(frozen=True)
class Bitmap(Coding):
    """One bit per entry, `ones` of which are set."""

    ones: int

    def fixed_bits(self, num: int) -> int:
        return num

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return row_bits(data, count, 1)

    def check(self, row: Tensor) -> None:
        check_within(row, 0, 2)
        self._check_ones(row)

    def write(self, row: Tensor) -> Tensor:
        return Unsigned(1).write(row)

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        row, end = Unsigned(1).read(bits, start, num, dtype)
        self._check_ones(row)
        return row, end

    def _check_ones(self, row: Tensor) -> None:
        ones = int(row.sum())
        if ones != self.ones:
            raise WireError(f"{ones} bits set where {self.ones} are expected")


@dataclass(frozen=True)
class Rice(Coding):
    """Golomb-Rice codes of non-negative integers v: v >> r in unary (ended by a one), and the r low bits of v.

    Solomon Golomb, "Run-length encodings", 1966; Robert Rice, 1979. The unary parts of all entries come first, then all
    low bits.

    Attributes:
        parameter: r.
        span: the entries are gaps between indices in [0, span), so their sum plus their number is at most `span`; None:
            any non-negative integers.
    """

    parameter: int
    span: int | None = None

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return sum_sent(data >> self.parameter, count) + row_bits(data, count, 1 + self.parameter)

    def check(self, row: Tensor) -> None:
        check_within(row, 0, 1 << 62)
        self._check_span(row)

    def write(self, row: Tensor) -> Tensor:
        ends = (row.to(torch.int64) >> self.parameter).add_(1).cumsum(0)
        unary = row.new_zeros(int(ends[-1]) if len(row) else 0, dtype=torch.uint8)
        unary.index_fill_(0, ends.sub_(1), 1)
        return torch.cat((unary, bits_of(row, self.parameter)))

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        ones = self._ones(bits[start:], num)
        if len(ones) < num:
            raise WireError(f"the message ends after {len(ones)} of {num} entries")
        after_unary = start + (int(ones[-1]) + 1 if num else 0)
        low, end = Unsigned(self.parameter).read(bits, after_unary, num, torch.int64)
        quotients = ones.diff(prepend=ones.new_full((1,), -1)).sub_(1)
        values = quotients.bitwise_left_shift_(self.parameter).bitwise_or_(low)
        self._check_span(values)
        return to_row(values, dtype), end

    def _check_span(self, gaps: Tensor) -> None:
        if self.span is not None and (ends := int(gaps.sum()) + len(gaps)) > self.span:
            raise WireError(f"the last of {len(gaps)} gaps ends at index {ends - 1} of {self.span}")

    def _ones(self, bits: Tensor, num: int) -> Tensor:
        """[num] indices of the first ones, or fewer if there are fewer; searches the last low bits only if needed."""
        ones = nonzero_indices(bits[: max(len(bits) - num * self.parameter, 0)])[:num]
        return ones if len(ones) == num else nonzero_indices(bits)[:num]

    @staticmethod
    def for_gaps(num: int, span: int) -> "Rice":
        """The code with the smallest worst case for `num` gaps that sum to at most `span - num`."""
        best = min(range(bits_for(span) + 1), key=lambda r: Rice(r).worst_case(num, span))
        return Rice(best, span)

    def worst_case(self, num: int, span: int) -> int:
        """The maximum bits of `num` gaps with sum at most `span - num`: num (1 + r) + (span - num) // 2^r."""
        return num * (1 + self.parameter) + math.floor((span - num) / 2**self.parameter)
