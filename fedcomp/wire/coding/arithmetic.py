"""Arithmetic coding of bits: an unlikely bit costs more, a likely one next to nothing.

J. Rissanen, G. Langdon, "Arithmetic coding", IBM J. Res. Dev. 1979; as a range coder of 56 bits whose carries run into
what is already written. A one has the probability T / 2^16, T in [1, 2^16 - 1], known to both ends or sent before.

How long a row gets follows from its bits alone, without coding them: with c(T) = floor(-log2(T / 2^16) 2^20) + 2, it is
ceil(sum c / 2^20) + 1 bits, at most 2^-19 an entry and two bits above the ideal. The coder never needs more (its own
rounding costs less than 2^-23 an entry) and fills up to that; `bits` therefore counts on any device, exactly. Each bit
hangs on those before, so `write` and `read` copy entries and bits to the host and back.

Shape legend: M rows (senders), n entries a row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.coding.contract import bits_for, to_row
from fedcomp.wire.coding.fixed import Unsigned
from fedcomp.wire.errors import WireError

UNIT = 1 << 20
TOP = 1 << 16


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """Entries 0 and 1.

    Attributes:
        probability: [n] of a one, which both ends know; None: the row's number of ones is sent first, in
            ceil(log2(n + 1)) bits, and (ones + 1/2) / (n + 1) is the probability of each.
    """

    probability: Tensor | None = None

    def fixed_bits(self, num: int) -> int | None:
        return None

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        assert count is None, "rows of arithmetic codes have a known number of entries"
        num = data.shape[1]
        if self.probability is not None:
            thresholds = self._thresholds(num).to(data.device)
            one, zero = _costs(thresholds)
            return _length((data.to(torch.int64) * (one - zero)).sum(1) + zero.sum())
        ones = data.sum(1, dtype=torch.int64)
        one, zero = _costs(_share(ones, num))
        body = _length(ones * one + (num - ones) * zero)
        return torch.where((ones == 0) | (ones == num), 0, body) + bits_for(num + 1)

    def write(self, row: Tensor) -> Tensor:
        return torch.from_numpy(self._written(row.cpu())).to(row.device)

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        from fedcomp.wire.coding import arithmetic_numba

        at = start
        if self.probability is not None:
            thresholds = self._thresholds(num).cpu()
        else:
            sent, at = Unsigned(bits_for(num + 1), num + 1).read(bits, start, 1, torch.int64)
            ones = int(sent)
            if ones in (0, num):
                return to_row(bits.new_full((num,), ones // max(num, 1)), dtype), at
            thresholds = _share(sent.cpu(), num).expand(num)
        row = torch.from_numpy(arithmetic_numba.decode(bits[at:].cpu().numpy(), thresholds.numpy()))
        written = self._written(row)
        if not np.array_equal(bits[start : start + len(written)].cpu().numpy(), written):
            raise WireError(f"these bits are not the arithmetic code of {num} entries")
        return to_row(row.to(bits.device), dtype), start + len(written)

    def _written(self, row: Tensor) -> np.ndarray:
        """The bits of a row on the host."""
        from fedcomp.wire.coding import arithmetic_numba

        num, values = row.shape[0], row.numpy().astype(np.uint8)
        assert values.size == 0 or values.max() <= 1, f"an entry of {values.max()}"
        total = int(self.bits(row[None]))
        if self.probability is not None:
            return arithmetic_numba.encode(values, self._thresholds(num).cpu().numpy(), total)
        ones = int(values.sum())
        header = Unsigned(bits_for(num + 1)).write(torch.tensor([ones])).numpy()
        if ones in (0, num):
            return header
        thresholds = _share(torch.tensor([ones]), num).expand(num).numpy()
        return np.concatenate((header, arithmetic_numba.encode(values, thresholds, total - len(header))))

    def _thresholds(self, num: int) -> Tensor:
        """[n] int64 T."""
        assert self.probability is not None
        assert self.probability.shape == (num,), "a probability for every entry"
        return (self.probability.double() * TOP).round().to(torch.int64).clamp(1, TOP - 1)


def _share(ones: Tensor, num: int) -> Tensor:
    """T of rows with so many ones among `num`."""
    return ((2 * ones + 1) * TOP // (2 * (num + 1))).clamp(1, TOP - 1)


def _costs(thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """c of a one and of a zero."""
    table = _table(thresholds.device)
    return table[thresholds], table[TOP - thresholds]


def _length(cost: Tensor) -> Tensor:
    return (cost + (UNIT - 1)) // UNIT + 1


@functools.cache
def _table(device: torch.device) -> Tensor:
    """[2^16] int64 c(T); the entry of T = 0 is never used."""
    chance = np.arange(1, TOP) / TOP
    table = torch.from_numpy(np.concatenate(([0], np.floor(-np.log2(chance) * UNIT) + 2)).astype(np.int64))
    return table.to(device, non_blocking=True)
