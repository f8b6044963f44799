"""Block sizes on the wire: as many as fill the vector, so that their number need not be said."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.wire import WireError
from fedcomp.wire.coding import Unsigned, bits_for
from fedcomp.wire.coding.contract import take_bits, to_row


@dataclass(frozen=True)
class Sizes:
    """Sizes in [1, longest] that add up to `total`, ceil(log2(longest)) bits each; zeros behind them are not sent.

    A reader stops where the sum is reached, and refuses sizes that overshoot it.
    """

    total: int
    longest: int

    @property
    def width(self) -> int:
        """Bits a size."""
        return bits_for(self.longest)

    def fixed_bits(self, num: int) -> int | None:
        return None

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        assert count is None
        return (data > 0).sum(1) * self.width

    def write(self, row: Tensor) -> Tensor:
        sizes = row[: int((row > 0).sum())]
        assert int(sizes.sum()) == self.total == int(row.sum()), f"sizes of {int(row.sum())} in all, not {self.total}"
        return Unsigned(self.width, self.longest).write(sizes - 1)

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        held = num if not self.width else min(num, (len(bits) - start) // self.width)
        values, _ = Unsigned(self.width).read(take_bits(bits, start, held * self.width), 0, held, torch.int64)
        sizes = values + 1
        ends = sizes.cumsum(0)
        used = int((ends < self.total).sum()) + 1
        if used > held or int(ends[used - 1]) != self.total:
            raise WireError(f"block sizes that do not add up to {self.total}")
        longest = int(sizes[:used].max())
        if longest > self.longest:
            raise WireError(f"a block of {longest} entries where at most {self.longest} are allowed")
        row = sizes.new_zeros(num)
        row[:used] = sizes[:used]
        return to_row(row, dtype), start + used * self.width
