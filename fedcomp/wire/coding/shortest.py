"""The shortest of several codings, row by row."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.wire.coding.contract import Coding, WireError, bits_for
from fedcomp.wire.coding.fixed import Unsigned


@dataclass(frozen=True)
class Shortest(Coding):
    """Writes every row in its shortest coding, after the number of the coding in ceil(log2(#codings)) bits.

    A row without entries takes no bits.

    Attributes:
        codings: of the same entries; ties go to the first.
    """

    codings: tuple[Coding, ...]

    @property
    def dtype(self) -> torch.dtype | None:
        return self.codings[0].dtype

    @property
    def choice(self) -> Unsigned:
        """Coding of the number of the chosen coding."""
        return Unsigned(bits_for(len(self.codings)), len(self.codings))

    def fixed_bits(self, num: int) -> int | None:
        if not num:
            return 0
        each = [coding.fixed_bits(num) for coding in self.codings]
        known = [bits for bits in each if bits is not None]
        return self.choice.width + min(known) if len(known) == len(each) else None

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        each = torch.stack([coding.bits(data, count) for coding in self.codings])
        bits = each.amin(0) + self.choice.width
        return bits * bool(data.shape[1]) if count is None else bits * (count > 0)

    def check(self, row: Tensor) -> None:
        for coding in self.codings:
            coding.check(row)

    def write(self, row: Tensor) -> Tensor:
        if not len(row):
            return self.choice.write(row)
        best = self._shortest(row)
        choice = self.choice.write(torch.tensor([best], device=row.device))
        return torch.cat((choice, self.codings[best].write(row)))

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        if not num:
            return self.codings[0].read(bits, start, 0, dtype)
        one, start = self.choice.read(bits, start, 1, torch.int64)
        chosen = int(one)
        row, end = self.codings[chosen].read(bits, start, num, dtype)
        if (best := self._shortest(row)) != chosen:
            raise WireError(f"a row in coding {chosen}, which is to be in coding {best}, as that is shorter")
        return row, end

    def _shortest(self, row: Tensor) -> int:
        """The number of the coding that takes the fewest bits."""
        each = [_length(coding, row) for coding in self.codings]
        return each.index(min(each))


def _length(coding: Coding, row: Tensor) -> int:
    """Bits of one row; synchronises only if they depend on the values."""
    fixed = coding.fixed_bits(row.shape[0])
    return int(coding.bits(row[None])) if fixed is None else fixed
