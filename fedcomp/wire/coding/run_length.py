"""The code of sparse vectors of signed levels by D. Alistarh et al., "QSGD", NeurIPS 2017, section 3.1."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.core.accelerated import is_safe
from fedcomp.wire.coding.contract import Coding, WireError, check_within, integer_dtype, to_row
from fedcomp.wire.coding.elias import Elias, omega_bits
from fedcomp.wire.coding.fixed import Unsigned
from fedcomp.wire.coding.packed_bytes import nonzero_indices

COMPILED_FROM = 1 << 13
"""Entries per row from which a CPU counts bits in compiled code (importing numba takes half a second)."""
ENTRIES_AT_ONCE = 1 << 17
"""Entries of shorter rows that a CPU counts at once, so that what it computes of them stays small."""


@dataclass(frozen=True)
class RunLength(Coding):
    """A vector of levels in [-s, s], stored as level + s, of which only the nonzero levels are written.

    The message has their number plus one and the distance of each from the previous one (Elias codes), a bit per sign,
    and their magnitudes (Elias codes). For s = 1 all magnitudes are 1 and are left out.

    Attributes:
        levels: s.
    """

    levels: int

    def fixed_bits(self, num: int) -> int | None:
        return None if num else 1

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        if data.device.type != "cpu":
            return self._bits(data, count)
        if data.shape[1] >= COMPILED_FROM and not is_safe():
            from fedcomp.wire.coding import run_length_numba

            sizes = [data.shape[1]] * len(data) if count is None else count.tolist()
            rows = (row[:num].numpy() for row, num in zip(data, sizes, strict=True))
            return torch.tensor([run_length_numba.row_bits(row, self.levels) for row in rows], dtype=torch.int64)
        at_once = max(1, ENTRIES_AT_ONCE // max(1, data.shape[1]))
        counts = itertools.repeat(None) if count is None else count.split(at_once)
        return torch.cat([self._bits(*part) for part in zip(data.split(at_once), counts)])

    def check(self, row: Tensor) -> None:
        check_within(row, 0, 2 * self.levels + 1)

    def write(self, row: Tensor) -> Tensor:
        gaps, signed = self._sparse(row)
        parts = [Elias().write(gaps.new_tensor([len(gaps) + 1])), Elias().write(gaps), (signed > 0).to(torch.uint8)]
        if self.levels > 1:
            parts.append(Elias(self.levels + 1).write(signed.abs()))
        return torch.cat(parts)

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        one_more, at = Elias(num + 2).read(bits, start, 1, torch.int64)
        sent = int(one_more) - 1
        gaps, at = Elias(num + 1).read(bits, at, sent, torch.int64)
        indices = gaps.cumsum(0) - 1
        last = int(indices[-1]) if sent else -1
        if last >= num:
            raise WireError(f"a level at index {last} of {num}")
        signs, at = Unsigned(1).read(bits, at, sent, torch.int64)
        magnitudes = torch.ones_like(signs)
        if self.levels > 1:
            magnitudes, at = Elias(self.levels + 1).read(bits, at, sent, torch.int64)
        values = gaps.new_full((num,), self.levels, dtype=integer_dtype(2 * self.levels + 1, dtype))
        values[indices] = ((2 * signs - 1) * magnitudes + self.levels).to(values.dtype)
        return to_row(values, dtype), at

    def _sparse(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """(distance of each nonzero level from the previous one, the nonzero levels), both int64."""
        indices = nonzero_indices((row ^ self.levels).bool())
        signed = row[indices].to(torch.int64) - self.levels
        return indices.diff(prepend=indices.new_full((1,), -1)), signed

    def _bits(self, data: Tensor, count: Tensor | None) -> Tensor:
        """As `bits`, without synchronisation: the index of the previous nonzero level is a running maximum."""
        index = torch.arange(data.shape[1], device=data.device)
        sent = data != self.levels
        if count is not None:
            sent &= index < count[:, None]
        last = torch.where(sent, index, -1).cummax(1).values
        gaps = index - torch.cat((torch.full_like(last[:, :1], -1), last[:, :-1]), 1)
        each = omega_bits(gaps) + 1
        if self.levels > 1:
            each = each + omega_bits((data.to(torch.int64) - self.levels).abs())
        return (each * sent).sum(1, dtype=torch.int64) + omega_bits(sent.sum(1) + 1)
