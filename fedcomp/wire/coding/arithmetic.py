"""Arithmetic coding of zeros and ones.

J. Rissanen, G. Langdon, "Arithmetic coding", IBM J. Res. Dev. 1979; here as a range coder of 56 bits that propagates
carries into words already written. A one has the probability T / 2^16 with T in [1, 2^16 - 1], which both ends know or
which is sent first.

The length of a row's code is defined without coding it: with c(T) = floor(-log2(T / 2^16) 2^20) + 2 it is
ceil(sum c / 2^20) + 1 bits, which exceeds the entropy by at most 2^-19 bits per entry and two bits. The coder never
needs more (its rounding costs less than 2^-23 bits per entry) and pads to this length, so `bits` is exact everywhere.
Coding is sequential, so `write` and `read` copy entries and bits to the host and back.

Shape legend: n entries a row.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.coding.contract import Coding, WireError, bits_for, check_within, to_row
from fedcomp.wire.coding.fixed import Unsigned

UNIT = 1 << 20
TOP = 1 << 16


@dataclass(frozen=True, eq=False)
class Arithmetic(Coding):
    """An arithmetic code of entries 0 and 1.

    Attributes:
        probability: [n] of a one for each entry, which both ends know; None: the row's number of ones is sent first in
            ceil(log2(n + 1)) bits, and every entry has the probability (ones + 1/2) / (n + 1).
    """

    probability: Tensor | None = None

    def fixed_bits(self, num: int) -> int | None:
        return None

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        if count is not None:
            raise ValueError("rows of arithmetic codes have a known number of entries: leave count out")
        num = data.shape[1]
        if self.probability is not None:
            thresholds = self._thresholds(num).to(data.device)
            one, zero = _costs(thresholds)
            return _length((data.to(torch.int64) * (one - zero)).sum(1) + zero.sum())
        ones = data.sum(1, dtype=torch.int64)
        one, zero = _costs(_threshold(ones, num))
        body = _length(ones * one + (num - ones) * zero)
        return torch.where((ones == 0) | (ones == num), 0, body) + bits_for(num + 1)

    def check(self, row: Tensor) -> None:
        check_within(row, 0, 2)

    def write(self, row: Tensor) -> Tensor:
        return torch.from_numpy(self._encode(row.cpu())).to(row.device)

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
            thresholds = _threshold(sent.cpu(), num).expand(num)
        row = torch.from_numpy(arithmetic_numba.decode(bits[at:].cpu().numpy(), thresholds.numpy()))
        written = self._encode(row)
        if not np.array_equal(bits[start : start + len(written)].cpu().numpy(), written):
            raise WireError(f"these bits are not the arithmetic code of {num} entries")
        return to_row(row.to(bits.device), dtype), start + len(written)

    def _encode(self, row: Tensor) -> np.ndarray:
        """The bits of a row on the host."""
        from fedcomp.wire.coding import arithmetic_numba

        num, values = row.shape[0], row.numpy().astype(np.uint8)
        total = int(self.bits(row[None]))
        if self.probability is not None:
            return arithmetic_numba.encode(values, self._thresholds(num).cpu().numpy(), total)
        ones = int(values.sum())
        header = Unsigned(bits_for(num + 1)).write(torch.tensor([ones])).numpy()
        if ones in (0, num):
            return header
        thresholds = _threshold(torch.tensor([ones]), num).expand(num).numpy()
        return np.concatenate((header, arithmetic_numba.encode(values, thresholds, total - len(header))))

    def _thresholds(self, num: int) -> Tensor:
        """[n] int64 T."""
        assert self.probability is not None
        if self.probability.shape != (num,):
            raise ValueError(f"Arithmetic has probabilities of shape {tuple(self.probability.shape)} for {num} entries")
        return (self.probability.double() * TOP).round().to(torch.int64).clamp(1, TOP - 1)


def _threshold(ones: Tensor, num: int) -> Tensor:
    """T of rows with `ones` ones among `num` entries."""
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
    probability = np.arange(1, TOP) / TOP
    table = torch.from_numpy(np.concatenate(([0], np.floor(-np.log2(probability) * UNIT) + 2)).astype(np.int64))
    return table.to(device, non_blocking=True)
