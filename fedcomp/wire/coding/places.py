"""Sets of places in a vector: sorted numbers, or one bit a place. (`Rice` codes their gaps.)"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.wire.coding.contract import bits_for, row_bits
from fedcomp.wire.coding.fixed import Unsigned
from fedcomp.wire.errors import WireError


@dataclass(frozen=True)
class Ascending:
    """Different places in [0, span) in ascending order, ceil(log2(span)) bits each."""

    span: int

    def fixed_bits(self, num: int) -> int:
        return num * bits_for(self.span)

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return row_bits(data, count, bits_for(self.span))

    def write(self, row: Tensor) -> Tensor:
        return Unsigned(bits_for(self.span), self.span).write(row)

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        row, end = Unsigned(bits_for(self.span), self.span).read(bits, start, num, dtype)
        if (row[1:] <= row[:-1]).any():
            raise WireError("places that are not in ascending order")
        return row, end


@dataclass(frozen=True)
class Bitmap:
    """One bit an entry, `ones` of which are set."""

    ones: int

    def fixed_bits(self, num: int) -> int:
        return num

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return row_bits(data, count, 1)

    def write(self, row: Tensor) -> Tensor:
        return Unsigned(1).write(row)

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        row, end = Unsigned(1).read(bits, start, num, dtype)
        ones = int(row.sum())
        if ones != self.ones:
            raise WireError(f"{ones} places set where {self.ones} are expected")
        return row, end
