"""Golomb-Rice codes, for gaps between places."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.wire.coding.contract import bits_for, extremes, row_bits, sum_sent, to_row
from fedcomp.wire.coding.fixed import Unsigned
from fedcomp.wire.coding.integers import bits_of
from fedcomp.wire.coding.packed_bytes import places_of
from fedcomp.wire.errors import WireError


@dataclass(frozen=True)
class Rice:
    """Golomb-Rice codes of non-negative integers: v >> r in unary (ended by a one), then r low bits.

    Solomon Golomb, "Run-length encodings", 1966; Robert Rice, 1979. All unary parts come first, then all low bits.

    Attributes:
        parameter: r.
        span: entries are gaps between places in [0, span), so that they and their number sum up to at most `span`;
            None: any non-negative integers.
    """

    parameter: int
    span: int | None = None

    def fixed_bits(self, num: int) -> int | None:
        return None if num else 0

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return sum_sent(data >> self.parameter, count) + row_bits(data, count, 1 + self.parameter)

    def write(self, row: Tensor) -> Tensor:
        least, _ = extremes(row) or (0, -1)
        assert least >= 0, f"{least} has no Rice code"
        assert self.span is None or int(row.sum()) + len(row) <= self.span, f"gaps pass {self.span}"
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
        if self.span is not None:
            ends = int(values.sum()) + num
            if ends > self.span:
                raise WireError(f"the last of {num} gaps ends at place {ends - 1} of {self.span}")
        return to_row(values, dtype), end

    def _ones(self, bits: Tensor, num: int) -> Tensor:
        """[num] places of the first ones, fewer if there are not as many; low bits follow, where none is looked for."""
        ones = places_of(bits[: max(len(bits) - num * self.parameter, 0)])[:num]
        return ones if len(ones) == num else places_of(bits)[:num]

    @staticmethod
    def for_gaps(num: int, span: int) -> Rice:
        """The code with the smallest worst case for `num` gaps that sum to at most `span - num`."""
        best = min(range(bits_for(span) + 1), key=lambda r: Rice(r).worst_case(num, span))
        return Rice(best, span)

    def worst_case(self, num: int, span: int) -> int:
        """Most bits that `num` gaps with sum at most `span - num` can take: num (1 + r) + (span - num) // 2^r."""
        return num * (1 + self.parameter) + math.floor((span - num) / 2**self.parameter)
