"""Sparse vectors of signed levels, as D. Alistarh et al. write them: "QSGD", NeurIPS 2017, section 3.1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.coding.contract import to_row
from fedcomp.wire.coding.elias import Elias, omega_bits
from fedcomp.wire.coding.fixed import Unsigned
from fedcomp.wire.errors import WireError

COMPILED_FROM = 1 << 16
"""Entries of a row from which a CPU counts its bits in compiled code: importing numba takes half a second."""


@dataclass(frozen=True)
class RunLength:
    """A vector of levels in [-s, s], entries being level + s: only those that are not zero are written.

    Their number plus one, then the distance of each from the one before it, Elias coded; a bit for each sign; their
    magnitudes, Elias coded. With s = 1 the magnitudes are known and left out.

    Attributes:
        levels: s.
    """

    levels: int

    def fixed_bits(self, num: int) -> int | None:
        return None if num else 1

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        if data.device.type == "cpu":
            counts = [data.shape[1]] * len(data) if count is None else count.tolist()
            sent = [self._row_bits(row[:num].numpy()) for row, num in zip(data, counts, strict=True)]
            return torch.tensor(sent, dtype=torch.int64)
        return self._bits_unread(data, count)

    def write(self, row: Tensor) -> np.ndarray:
        gaps, signed = self._sparse(row.numpy())
        parts = [Elias().write(torch.tensor([len(gaps) + 1])), Elias().write(torch.from_numpy(gaps))]
        parts.append((signed > 0).astype(np.uint8))
        if self.levels > 1:
            parts.append(Elias(self.levels + 1).write(torch.from_numpy(abs(signed))))
        return np.concatenate(parts)

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        one_more, at = Elias(num + 2).read(bits, start, 1, torch.int64)
        sent = int(one_more) - 1
        gaps, at = Elias(num + 1).read(bits, at, sent, torch.int64)
        places = np.cumsum(gaps.numpy()) - 1
        if sent and places[-1] >= num:
            raise WireError(f"a level at place {places[-1]} of {num}")
        signs, at = Unsigned(1).read(bits, at, sent, torch.int64)
        magnitudes = torch.ones_like(signs)
        if self.levels > 1:
            magnitudes, at = Elias(self.levels + 1).read(bits, at, sent, torch.int64)
        values = np.full(num, self.levels)
        values[places] += ((2 * signs - 1) * magnitudes).numpy()
        return to_row(values, dtype), at

    def _sparse(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(distances of the levels that are not zero from the ones before, the levels themselves), int64."""
        places = np.flatnonzero(row != self.levels)
        signed = row[places].astype(np.int64) - self.levels
        assert signed.size == 0 or abs(signed).max() <= self.levels, f"a level of {abs(signed).max()}"
        return np.diff(places, prepend=-1), signed

    def _row_bits(self, row: np.ndarray) -> int:
        if row.size >= COMPILED_FROM:
            from fedcomp.wire.coding import run_length_numba

            return run_length_numba.row_bits(row, self.levels)
        gaps, signed = self._sparse(row)
        bits = int(omega_bits(torch.tensor(len(gaps) + 1))) + len(gaps)
        bits += int(omega_bits(torch.from_numpy(gaps)).sum(dtype=torch.int64))
        return bits + (int(omega_bits(torch.from_numpy(abs(signed))).sum()) if self.levels > 1 else 0)

    def _bits_unread(self, data: Tensor, count: Tensor | None) -> Tensor:
        """The same without asking the device where the levels are: the place before is a running maximum."""
        place = torch.arange(data.shape[1], device=data.device)
        sent = data != self.levels
        if count is not None:
            sent &= place < count[:, None]
        last = torch.where(sent, place, -1).cummax(1).values
        gaps = place - torch.cat((torch.full_like(last[:, :1], -1), last[:, :-1]), 1)
        each = omega_bits(gaps) + 1
        if self.levels > 1:
            each = each + omega_bits((data.to(torch.int64) - self.levels).abs())
        return (each * sent).sum(1, dtype=torch.int64) + omega_bits(sent.sum(1) + 1)
