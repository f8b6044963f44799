"""Golomb-Rice codes, for gaps between places."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.coding.contract import bits_for, row_bits, sum_sent, to_row
from fedcomp.wire.coding.fixed import Unsigned
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

    def write(self, row: Tensor) -> np.ndarray:
        values = row.numpy().astype(np.int64)
        assert values.size == 0 or values.min() >= 0, f"{values.min()} has no Rice code"
        assert self.span is None or values.sum() + values.size <= self.span, f"gaps pass {self.span}"
        ends = np.cumsum((values >> self.parameter) + 1)
        unary = np.zeros(ends[-1] if values.size else 0, np.uint8)
        unary[ends - 1] = 1
        low = Unsigned(self.parameter).write(torch.from_numpy(values & ((1 << self.parameter) - 1)))
        return np.concatenate([unary, low])

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        ones = np.flatnonzero(bits[start:])[:num]
        if len(ones) < num:
            raise WireError(f"the message ends after {len(ones)} of {num} entries")
        quotients = np.diff(ones, prepend=-1) - 1
        after_unary = start + (int(ones[-1]) + 1 if num else 0)
        low, end = Unsigned(self.parameter).read(bits, after_unary, num, torch.int64)
        values = (quotients << self.parameter) | low.numpy()
        if self.span is not None and values.sum() + num > self.span:
            raise WireError(f"the last of {num} gaps ends at place {values.sum() + num - 1} of {self.span}")
        return to_row(values, dtype), end

    @staticmethod
    def for_gaps(num: int, span: int) -> Rice:
        """The code with the smallest worst case for `num` gaps that sum to at most `span - num`."""
        best = min(range(bits_for(span) + 1), key=lambda r: Rice(r).worst_case(num, span))
        return Rice(best, span)

    def worst_case(self, num: int, span: int) -> int:
        """Most bits that `num` gaps with sum at most `span - num` can take: num (1 + r) + (span - num) // 2^r."""
        return num * (1 + self.parameter) + math.floor((span - num) / 2**self.parameter)
