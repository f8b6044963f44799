"""The blocks that a vector is cut into; each is coded by one number. Shape legend: M senders, D entries, B blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

LONGEST = 1 << 16
"""Entries a block may have. Scores are sums in fixed point, whose step grows with the longest block."""


@dataclass(frozen=True)
class Blocks:
    """Consecutive blocks of a vector: block b holds the coordinates offsets[b] <= e < offsets[b + 1].

    Attributes:
        offsets: [B + 1] int64, strictly increasing, on the run's device.
        begin, end: the first offset and the last, known to the host. longest: entries of the longest block, at most.
        first: number of the first block, which is not 0 in a part of a vector's blocks.
        size: entries of every block but the last, where all are alike: then offsets need not be read to be known.
    """

    offsets: Tensor
    begin: int
    end: int
    longest: int
    first: int = 0
    size: int | None = None

    @classmethod
    def fixed(cls, dim: int, size: int, device: torch.device | str = "cpu") -> Blocks:
        """0, s, 2s, ..., d: blocks of `size` entries, the last one as long as is left."""
        check_block("block size", size)
        offsets = torch.arange(-(-dim // size) + 1, device=device) * size
        return cls(offsets.clamp_(max=dim), 0, dim, min(size, dim), size=size)

    @classmethod
    def of(cls, offsets: Sequence[int] | Tensor, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """Blocks of any sizes that partition [0, dim); reads offsets back to the host.

        Raises:
            ValueError: offsets that do not start at 0, rise and end at `dim`, or a block longer than `LONGEST`.
        """
        given = torch.as_tensor(offsets, dtype=torch.int64, device="cpu")
        sizes = given.diff()
        if given.dim() != 1 or not len(sizes) or int(given[0]) != 0 or int(given[-1]) != dim or int(sizes.min()) < 1:
            raise ValueError(
                f"block offsets {_shown(given)} must start at 0, increase, and end at the vector's size, {dim}"
            )
        check_block("longest block", int(sizes.max()))
        return cls(given.to(device, non_blocking=True), 0, dim, int(sizes.max()))

    @property
    def num(self) -> int:
        """B."""
        return self.offsets.shape[0] - 1

    @property
    def dim(self) -> int:
        """Entries of all blocks together."""
        return self.end - self.begin

    @property
    def sizes(self) -> Tensor:
        """[B] int64 entries of each."""
        return self.offsets.diff()

    def owner(self) -> Tensor:
        """[dim] int64: which of these blocks (from 0 on) each entry lies in."""
        every = torch.arange(self.num, device=self.offsets.device)
        return every.repeat_interleave(self.sizes, output_size=self.dim)

    def part(self, low: int, high: int) -> Blocks:
        """Blocks low <= b < high of these, which keep their numbers and coordinates."""
        assert 0 <= low <= high <= self.num, (low, high, self.num)
        begin, end = self._offset(low), self._offset(high)
        return replace(self, offsets=self.offsets[low : high + 1], begin=begin, end=end, first=self.first + low)

    def pieces(self, num_blocks: int) -> Iterator[tuple[slice, Blocks]]:
        """Runs of `num_blocks` blocks at a time: (which of these blocks, themselves)."""
        for low in range(0, self.num, num_blocks):
            high = min(low + num_blocks, self.num)
            yield slice(low, high), self.part(low, high)

    def _offset(self, block: int) -> int:
        """Where a block begins, for the host; read back only where sizes vary and it is neither end."""
        if block in (0, self.num):
            return self.end if block else self.begin
        if self.size is not None:
            return self.begin + block * self.size
        return int(self.offsets.cpu().numpy()[block])

    def sums(self, x: Tensor) -> Tensor:
        """[M, B] float64 sums of x [M, dim] over each block, in one order on every device."""
        ends = self.offsets - self.begin
        rows = []
        for row in x:
            total = torch.cat((x.new_zeros(1, dtype=torch.float64), row.cumsum(0, dtype=torch.float64)))
            rows.append(total[ends].diff())
        return torch.stack(rows) if rows else x.new_zeros(0, self.num, dtype=torch.float64)


def check_block(name: str, size: int) -> None:
    """Raise ValueError unless a block may have `size` entries."""
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LONGEST:
        raise ValueError(f"{name} {size} must be a whole number of entries, from 1 to {LONGEST}")


def _shown(offsets: Tensor) -> str:
    shown = [str(offset) for offset in offsets.flatten()[:4].tolist()]
    return ", ".join([*shown, "..."] if offsets.numel() > 4 else shown) or "(none)"
