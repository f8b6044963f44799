"""Blocks of about equal divergence, from boundaries that every client proposes.

BiCompFL's Adaptive, after B. Isik et al., "Adaptive compression in federated learning via side information" (KLMS),
AISTATS 2024. A client scans its coordinates and closes a block before the one that would lift the block's divergence
above kappa = ln n_IS, or make it longer than `longest`. The j-th boundary of all is the mean of the clients' j-th
boundaries, rounded up, over those that have one; one that is not above the last is dropped.

New blocks are asked for where rho = mean over blocks of min(100, kappa / KL) exceeds phi; with `two_sided` also where
it is below 1 / phi. KLMS takes the mean over all clients, which no server can know; here each client says in one bit
whether its own rho is out of bounds, and the majority decides. A client whose own proposal would be the present blocks,
as where all are of `longest`, does not ask. Not copied: KLMS's first block is one entry too long.

Shape legend: M clients, D entries, B blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.mrc.allocation.contract import SHARES, check_trigger, enough, flags
from fedcomp.compressor.mrc.allocation.sizes import Sizes
from fedcomp.compressor.mrc.blocks import Blocks, check_block
from fedcomp.core.validate import check_choice
from fedcomp.wire import Field, Payload

MOST_RATIO = 100.0
"""What a block without divergence counts in rho."""


@dataclass(frozen=True)
class Adaptive:
    """Boundaries that follow the divergence; ceil(log2(longest)) bits a block from each client and to all.

    Attributes:
        size: of the first blocks. longest: b_max, entries a block may have; the paper names none, its table 8 needs at
            least 1168.
        phi: deviation of rho at which blocks are cut anew. two_sided: also where blocks carry too much.
        vote: majority or any: how many clients must ask.
    """

    size: int = 256
    longest: int = 4096
    phi: float = 3.0
    two_sided: bool = False
    vote: str = "majority"

    def __post_init__(self) -> None:
        check_block("size", self.size)
        check_trigger(self.phi, self.longest)
        check_choice("vote", self.vote, tuple(SHARES))

    def first(self, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """Blocks of one size until there are divergences."""
        return Blocks.fixed(dim, self.size, device)

    def request(self, kl: Tensor, blocks: Blocks, num_candidates: int) -> Payload:
        """One bit a client: whether its rho is out of bounds, and other blocks would help; reads back to see that."""
        capacity = math.log(num_candidates)
        ratio = (capacity / blocks.sums(kl)).clamp_(max=MOST_RATIO).nan_to_num_(MOST_RATIO).mean(1)
        wish = (ratio > self.phi) | (ratio < 1 / self.phi) if self.two_sided else ratio > self.phi
        asking, present = wish.nonzero()[:, 0], blocks.offsets.cpu().numpy()
        for client, row in zip(asking.tolist(), kl[asking].cpu().numpy(), strict=True):
            wish[client] = not np.array_equal(boundaries(row, capacity, self.longest), present)
        return flags(wish)

    def wanted(self, flags: Payload) -> bool:
        """Whether enough clients asked for new blocks."""
        return enough(flags, self.vote)

    def propose(self, kl: Tensor, num_candidates: int) -> Payload:
        """The sizes of each client's blocks [M, B'], zeros behind them; divergences are read back."""
        sizes = [np.diff(boundaries(row, math.log(num_candidates), self.longest)) for row in kl.cpu().numpy()]
        return self._message([torch.from_numpy(row) for row in sizes], kl.shape[1], kl.device)

    def merge(self, proposals: Payload) -> Payload:
        """One row: the sizes of the merged blocks."""
        sizes = _sizes(proposals)
        offsets = merged([row[row > 0].cumsum(0).numpy() for row in sizes.cpu()])
        return self._message([torch.from_numpy(np.diff(offsets))], int(offsets[-1]), sizes.device)

    def read(self, allocation: Payload, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """The blocks whose sizes were sent."""
        sizes = _sizes(allocation)[0].cpu()
        return Blocks.of(torch.cat((sizes.new_zeros(1), sizes[sizes > 0].cumsum(0))), dim, device)

    def _message(self, rows: list[Tensor], dim: int, device: torch.device) -> Payload:
        sizes = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
        return Payload({"sizes": Field(sizes, Sizes(dim, self.longest))})


def _sizes(message: Payload) -> Tensor:
    """[M, B'] what it holds."""
    num = message.fields["sizes"].data.shape[1] if "sizes" in message.fields else 1
    return message.expect(sizes=num)[0]


def boundaries(kl: np.ndarray, capacity: float, longest: int) -> np.ndarray:
    """[B + 1] int64 0, ..., d: blocks as long as their divergence, the sum of kl [D], stays within capacity, in nats.

    Sums are differences of one running sum in float64. A coordinate that exceeds capacity by itself is a block.
    """
    total = np.concatenate(([0.0], kl.astype(np.float64).cumsum()))
    dim, ends = kl.size, [0]
    while ends[-1] < dim:
        begin = ends[-1]
        window = total[begin : begin + longest + 1]
        fits = int(np.searchsorted(window, total[begin] + capacity, side="right")) - 1
        ends.append(min(begin + max(fits, 1), dim))
    return np.array(ends, np.int64)


def merged(ends: list[np.ndarray]) -> np.ndarray:
    """[B + 1] int64 offsets from the ends of each client's blocks, the last of which is d.

    No block becomes longer than the clients' longest: while the same clients have a j-th end, its mean grows by no
    more than that, and where one drops out, whose ends were at d, the mean falls.
    """
    dim, most = int(ends[0][-1]), max(len(row) for row in ends)
    total, holders = np.zeros(most, np.int64), np.zeros(most, np.int64)
    for row in ends:
        total[: len(row)] += row
        holders[: len(row)] += 1
    mean = -(-total // holders)
    before = np.concatenate(([0], np.maximum.accumulate(mean)[:-1]))
    kept = mean[(mean > before) & (mean < dim)]
    return np.concatenate(([0], kept, [dim])).astype(np.int64)
