"""Blocks of about equal divergence, from boundaries that the clients propose.

BiCompFL's Adaptive, after B. Isik et al., "Adaptive compression in federated learning via side information" (KLMS),
AISTATS 2024. A client scans its coordinates and ends a block before its divergence would exceed kappa (contract.py) or
its length `longest`. The j-th common boundary is the mean of the clients' j-th boundaries, rounded up, over the clients
that have one; a boundary that is not above the previous one is dropped.

A client requests new blocks if rho = mean over blocks of min(100, kappa / KL) exceeds phi; with `two_sided` also if it
is below 1 / phi. KLMS averages rho over all clients, which the server does not know. Here each client sends one bit,
and the majority decides. A client whose proposal would equal the current blocks does not request new ones. KLMS's first
block is one entry too long; this is not copied.

Shape legend: M clients, D entries, B blocks.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.mrc.allocation.contract import Changing, flags
from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.wire import Field, Payload, WireError
from fedcomp.wire.coding import Coding, Unsigned, bits_for
from fedcomp.wire.coding.contract import take_bits, to_row

MAX_RATIO = 100.0
"""Contribution to rho of a block without divergence."""


@dataclass(frozen=True)
class Adaptive(Changing):
    """Boundaries that follow the divergence; ceil(log2(longest)) bits per block from each client and to all.

    Attributes:
        longest: b_max; the paper gives no value, its table 8 needs at least 1168. phi: of rho.
    """

    def request(self, kl: Tensor, blocks: Blocks, num_candidates: int) -> Payload:
        """One bit per client: whether its rho is out of bounds and other blocks would help; synchronises."""
        capacity = self.kappa(num_candidates)
        ratio = (capacity / blocks.sums(kl)).clamp_(max=MAX_RATIO).nan_to_num_(MAX_RATIO).mean(1)
        requested = (ratio > self.phi) | (ratio < 1 / self.phi) if self.two_sided else ratio > self.phi
        requesting, current = requested.nonzero()[:, 0], blocks.offsets.cpu().numpy()
        for client, row in zip(requesting.tolist(), kl[requesting].cpu().numpy(), strict=True):
            requested[client] = not np.array_equal(boundaries(row, capacity, self.longest), current)
        return flags(requested)

    def propose(self, kl: Tensor, num_candidates: int) -> Payload:
        """The sizes of each client's blocks [M, B'], padded with zeros; copies divergences to the host."""
        capacity = self.kappa(num_candidates)
        sizes = [np.diff(boundaries(row, capacity, self.longest)) for row in kl.cpu().numpy()]
        return self._message([torch.from_numpy(row) for row in sizes], kl.shape[1], kl.device)

    def merge(self, proposals: Payload) -> Payload:
        sizes = _sizes(proposals)
        offsets = merged([row[row > 0].cumsum(0).numpy() for row in sizes.cpu()])
        return self._message([torch.from_numpy(np.diff(offsets))], int(offsets[-1]), sizes.device)

    def read(self, allocation: Payload, dim: int, device: torch.device | str = "cpu") -> Blocks:
        sizes = _sizes(allocation)[0].cpu()
        return Blocks.of(torch.cat((sizes.new_zeros(1), sizes[sizes > 0].cumsum(0))), dim, device)

    def _message(self, rows: list[Tensor], dim: int, device: torch.device) -> Payload:
        sizes = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
        return Payload({"sizes": Field(sizes, Sizes(dim, self.longest))})


def _sizes(message: Payload) -> Tensor:
    """[M, B'] the sizes in a message."""
    num = message.fields["sizes"].data.shape[1] if "sizes" in message.fields else 1
    return message.expect(sizes=num)[0]


def boundaries(kl: np.ndarray, capacity: float, longest: int) -> np.ndarray:
    """[B + 1] int64 0, ..., D: the longest blocks whose divergence, the sum of kl [D] in nats, is at most `capacity`.

    Sums are differences of one cumulative sum in float64. A coordinate that exceeds `capacity` alone is a block.
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
    """[B + 1] int64 offsets from the ends of each client's blocks; each client's last end is D.

    No block is longer than the longest block of a client: while the same clients have a j-th end, its mean grows by at
    most that length, and it falls when a client drops out, whose last end was D.
    """
    dim, max_blocks = int(ends[0][-1]), max(len(row) for row in ends)
    total, num_clients = np.zeros(max_blocks, np.int64), np.zeros(max_blocks, np.int64)
    for row in ends:
        total[: len(row)] += row
        num_clients[: len(row)] += 1
    mean = -(-total // num_clients)
    before = np.concatenate(([0], np.maximum.accumulate(mean)[:-1]))
    kept = mean[(mean > before) & (mean < dim)]
    return np.concatenate(([0], kept, [dim])).astype(np.int64)


@dataclass(frozen=True)
class Sizes(Coding):
    """A coding of sizes in [1, longest] that sum to `total`, ceil(log2(longest)) bits each; padding zeros are not sent.

    The number of sizes is not sent: a reader stops at the sum, and refuses sizes that exceed it.
    """

    total: int
    longest: int

    @property
    def width(self) -> int:
        """Bits per size."""
        return bits_for(self.longest)

    def fixed_bits(self, num: int) -> int | None:
        return None

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return (data > 0).sum(1) * self.width

    def check(self, row: Tensor) -> None:
        sizes = row[: int((row > 0).sum())]
        if not int(sizes.sum()) == self.total == int(row.sum()):
            raise WireError(f"block sizes that add up to {int(row.sum())}, not {self.total}")
        Unsigned(self.width, self.longest).check(sizes - 1)

    def write(self, row: Tensor) -> Tensor:
        sizes = row[: int((row > 0).sum())]
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
