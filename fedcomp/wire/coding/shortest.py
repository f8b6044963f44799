"""The shortest of several codings, row by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.coding.contract import Coding, bits_for
from fedcomp.wire.coding.fixed import Unsigned


@dataclass(frozen=True)
class Shortest:
    """Writes every row in the coding that is shortest for it, and says in ceil(log2(#codings)) bits which one it is.

    Attributes:
        codings: codings of the same entries; of equally short ones the first is taken.
    """

    codings: tuple[Coding, ...]

    @property
    def choice(self) -> Unsigned:
        """How the number of the coding is written."""
        return Unsigned(bits_for(len(self.codings)), len(self.codings))

    def fixed_bits(self, num: int) -> int | None:
        each = [coding.fixed_bits(num) for coding in self.codings]
        known = [bits for bits in each if bits is not None]
        return self.choice.width + min(known) if len(known) == len(each) else None

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        each = torch.stack([coding.bits(data, count) for coding in self.codings])
        return each.amin(0) + self.choice.width

    def write(self, row: Tensor) -> np.ndarray:
        each = [int(coding.bits(row[None])) for coding in self.codings]
        best = each.index(min(each))
        return np.concatenate([self.choice.write(torch.tensor([best])), self.codings[best].write(row)])

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        chosen, start = self.choice.read(bits, start, 1, torch.int64)
        return self.codings[int(chosen)].read(bits, start, num, dtype)
