"""A vector sent in parts: each receiver gets some of its blocks, and other blocks in the next round.

BiCompFL's SplitDL, arXiv:2502.00206, partitions the B blocks into n groups of consecutive blocks. The paper does not
say which receiver gets which group; here receiver i gets group (i + t) mod n in round t, so it gets every block in n
rounds.

Shape legend: M receivers (rows), D entries, B blocks, R repetitions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.codec import MRC
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge


def groups(num_blocks: int, num_groups: int) -> list[tuple[int, int]]:
    """(first block, one past the last) of each group; sizes differ by at most one."""
    ends = [num_blocks * group // num_groups for group in range(num_groups + 1)]
    return list(pairwise(ends))


def rotated(clients: Sequence[int], round: int, num_clients: int) -> tuple[int, ...]:
    """The group of each client in a round: (i + t) mod n."""
    return tuple((client + round) % num_clients for client in clients)


@dataclass(frozen=True)
class SplitMRC:
    """Sends each row its own part of the blocks.

    Attributes:
        codec: with the blocks, candidates and priors of whole vectors.
        parts: (first block, one past the last) of each row.
    """

    codec: MRC
    parts: tuple[tuple[int, int], ...]

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """Indices [M, R B'] of the rows' parts, where B' is the largest; both ends know the number of each row."""
        rows = []
        for row, (own, codec, part) in enumerate(self._rows(common)):
            alone = codec.encode(x[row : row + 1, part.begin : part.end], own, sender_key)
            rows.append(alone.fields["indices"].data[0])
        return Payload({"indices": Field(self._padded(rows, x), self.codec.coding, self._counts(x), count_known=True)})

    def counts(self, payload: Payload, common: SharedKnowledge) -> tuple[Tensor, Tensor]:
        """(number of samples with a one [M, D] int32, zero outside a row's part; entries in the part [M, D] bool)."""
        (indices,) = payload.expect(indices=self.codec.repetitions * self._largest)
        counts = torch.zeros(len(indices), common.dim, dtype=torch.int32, device=indices.device)
        inside = torch.zeros_like(counts, dtype=torch.bool)
        for row, (own, codec, part) in enumerate(self._rows(common)):
            data = indices[row : row + 1, : self.codec.repetitions * part.num]
            here = slice(part.begin, part.end)
            alone = Payload({"indices": Field(data, codec.coding)})
            counts[row, here] = codec.counts(alone, own)[0]
            inside[row, here] = True
        return counts, inside

    @property
    def _largest(self) -> int:
        return max((high - low for low, high in self.parts), default=0)

    def _counts(self, like: Tensor) -> Tensor:
        sizes = [self.codec.repetitions * (high - low) for low, high in self.parts]
        return torch.tensor(sizes, dtype=torch.int64, device="cpu").to(like.device, non_blocking=True)

    def _padded(self, rows: list[Tensor], like: Tensor) -> Tensor:
        """[M, R B'] the rows, padded with zeros."""
        padded = torch.zeros(len(rows), self.codec.repetitions * self._largest, dtype=torch.int32, device=like.device)
        padded = padded.to(rows[0].dtype) if rows else padded
        for row, indices in enumerate(rows):
            padded[row, : len(indices)] = indices
        return padded

    def _rows(self, common: SharedKnowledge) -> Iterator[tuple[SharedKnowledge, MRC, Blocks]]:
        """For each row: the shared knowledge of its part, the codec of its part, and the part."""
        blocks = self.codec.cut(common.dim, common.ids.device)
        side = common.side_information
        assert side is not None
        assert len(self.parts) == len(common.ids), "one part per row"
        for row, (low, high) in enumerate(self.parts):
            part = blocks.part(low, high)
            here = side[row % len(side), None, part.begin : part.end]
            own = replace(common, ids=common.ids[row : row + 1], layers=(part.dim,), side_information=here)
            yield own, self.codec.within(part), part
