"""Entries that are sent in some rounds only, as both ends know from their common state. Shape legend: n entries a row.

Whether a first exchange has happened is a tensor of the state, and a host that asked for it would make a GPU wait. So
the message is written every time, and the coding says how much of it is sent: all or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.coding.contract import Coding


@dataclass(frozen=True)
class When:
    """The entries in another coding if `happens`, else not a bit; the receiver then finds zeros.

    Attributes:
        coding: how an entry is written. happens: 0-d bool that both ends know.
    """

    coding: Coding
    happens: Tensor

    def fixed_bits(self, num: int) -> int | None:
        return None

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return self.coding.bits(data, count) * self.happens

    def write(self, row: Tensor) -> np.ndarray:
        return self.coding.write(row) if bool(self.happens) else np.zeros(0, np.uint8)

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        if bool(self.happens):
            return self.coding.read(bits, start, num, dtype)
        return torch.zeros(num, dtype=dtype), start
