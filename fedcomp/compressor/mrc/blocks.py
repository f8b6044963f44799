"""The blocks of a vector, each of which is coded by one index. Shape legend: M senders, D entries, B blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.core.ranges import Whole
from fedcomp.core.validate import check_count

MAX_BLOCK = 1 << 16
"""Maximum entries of a block. Scores are fixed-point sums, whose step grows with the longest block."""
BlockSize = Annotated[int, Whole(meaning="entries of a block", most=MAX_BLOCK)]


@dataclass(frozen=True)
class Blocks:
    """Consecutive blocks of a vector: block b has the coordinates offsets[b] <= e < offsets[b + 1].

    Attributes:
        offsets: [B + 1] int64, strictly increasing, on the run's device.
        begin, end: the first and the last offset, on the host. longest: upper bound of the entries of a block.
        first: number of the first block; not 0 for a part of a vector's blocks.
        size: entries of every block but the last, if these are equal: then the host need not read offsets. Else None.
    """

    offsets: Tensor
    begin: int
    end: int
    longest: int
    first: int = 0
    size: int | None = None

    @classmethod
    def fixed(cls, dim: int, size: int, device: torch.device | str = "cpu") -> "Blocks":
        """Blocks of `size` entries, with offsets 0, s, 2s, ..., D; the last block has the remaining entries."""
        check_count("block size", size, most=MAX_BLOCK)
        offsets = torch.arange(-(-dim // size) + 1, device=device) * size
        return cls(offsets.clamp_(max=dim), 0, dim, min(size, dim), size=size)

    @classmethod
    def of(cls, offsets: Sequence[int] | Tensor, dim: int, device: torch.device | str = "cpu") -> "Blocks":
        """Blocks of any sizes that partition [0, dim); copies offsets to the host.

        Raises:
            ValueError: offsets that do not start at 0, increase and end at `dim`, or a block longer than `MAX_BLOCK`.
        """
        given = torch.as_tensor(offsets, dtype=torch.int64, device="cpu")
        sizes = given.diff()
        if given.dim() != 1 or not len(sizes) or int(given[0]) != 0 or int(given[-1]) != dim or int(sizes.min()) < 1:
            raise ValueError(
                f"block offsets {_shown(given)} must start at 0, increase, and end at the vector's size, {dim}"
            )
        check_count("longest block", int(sizes.max()), most=MAX_BLOCK)
        return cls(given.to(device, non_blocking=True), 0, dim, int(sizes.max()))

    @property
    def num(self) -> int:
        """B."""
        return self.offsets.shape[0] - 1

    @property
    def dim(self) -> int:
        """Number of entries of all blocks."""
        return self.end - self.begin

    @property
    def sizes(self) -> Tensor:
        """[B] int64 entries of each block."""
        return self.offsets.diff()

    def owner(self) -> Tensor:
        """[dim] int64: index of the block (counted from 0) of each entry."""
        indices = torch.arange(self.num, device=self.offsets.device)
        return indices.repeat_interleave(self.sizes, output_size=self.dim)

    def part(self, low: int, high: int) -> "Blocks":
        """Blocks low <= b < high of these; they keep their numbers and coordinates."""
        assert 0 <= low <= high <= self.num, (low, high, self.num)
        begin, end = self._offset(low), self._offset(high)
        return replace(self, offsets=self.offsets[low : high + 1], begin=begin, end=end, first=self.first + low)

    def pieces(self, num_blocks: int) -> "Iterator[tuple[slice, Blocks]]":
        """(slice of block indices, these blocks) for `num_blocks` consecutive blocks at a time."""
        for low in range(0, self.num, num_blocks):
            high = min(low + num_blocks, self.num)
            yield slice(low, high), self.part(low, high)

    def _offset(self, block: int) -> int:
        """Where a block begins, on the host; synchronises only for an inner block if sizes differ."""
        if block in (0, self.num):
            return self.end if block else self.begin
        if self.size is not None:
            return self.begin + block * self.size
        return int(self.offsets.cpu().numpy()[block])

    def sums(self, x: Tensor) -> Tensor:
        """[M, B] float64 sums of x [M, dim] over each block, summed in the same order on every device."""
        ends = self.offsets - self.begin
        rows = []
        for row in x:
            total = torch.cat((x.new_zeros(1, dtype=torch.float64), row.cumsum(0, dtype=torch.float64)))
            rows.append(total[ends].diff())
        return torch.stack(rows) if rows else x.new_zeros(0, self.num, dtype=torch.float64)


def _shown(offsets: Tensor) -> str:
    shown = [str(offset) for offset in offsets.flatten()[:4].tolist()]
    return ", ".join([*shown, "..."] if offsets.numel() > 4 else shown) or "(none)"
