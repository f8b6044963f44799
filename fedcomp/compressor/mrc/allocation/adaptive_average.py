"""Blocks of one size that follows the mean divergence: BiCompFL's Adaptive-Avg, arXiv:2502.00206.

A client requests new blocks if the mean divergence of its blocks differs from the capacity kappa (contract.py) by more
than the factor phi. Then each client proposes s_i = clip(round(kappa d / sum of its divergences), smallest, longest),
and the server broadcasts the rounded mean. The paper specifies neither phi nor the kind of mean.

Shape legend: M clients, D entries, B blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.mrc.allocation.contract import CAPACITIES, SHARES, check_trigger, enough, flags
from fedcomp.compressor.mrc.blocks import Blocks, check_block
from fedcomp.core.validate import check_choice
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Unsigned, bits_for


@dataclass(frozen=True)
class AdaptiveAverage:
    """One size for all blocks; ceil(log2(longest)) bits from each client and to all, when it changes.

    Attributes:
        size: of the first blocks. smallest, longest: bounds of later sizes.
        phi: factor by which the mean divergence may differ from capacity. two_sided: also if it is too high.
        vote: majority or any: how many clients must request new blocks. capacity: nats or bits, the unit of kappa.
    """

    size: int = 256
    smallest: int = 16
    longest: int = 4096
    phi: float = 3.0
    two_sided: bool = True
    vote: str = "any"
    capacity: str = "nats"

    def __post_init__(self) -> None:
        check_block("size", self.size)
        check_trigger(self.phi, self.longest, self.capacity, self.smallest)
        check_choice("vote", self.vote, tuple(SHARES))

    def first(self, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """Blocks of the first size."""
        return Blocks.fixed(dim, self.size, device)

    def request(self, kl: Tensor, blocks: Blocks, num_candidates: int) -> Payload:
        """One bit per client: whether its mean divergence is off by more than phi and another size would help."""
        ratio = kl.sum(1, dtype=torch.float64) / blocks.num / CAPACITIES[self.capacity](num_candidates)
        low = ratio < 1 / self.phi
        others = self._sizes(kl, num_candidates).clamp_(max=kl.shape[1]) != blocks.longest
        return flags(others & ((ratio > self.phi) | low if self.two_sided else low))

    def wanted(self, flags: Payload) -> bool:
        """Whether enough clients requested another size."""
        return enough(flags, self.vote)

    def propose(self, kl: Tensor, num_candidates: int) -> Payload:
        """The size at which each client's blocks reach capacity; `longest` without divergence."""
        return self._message(self._sizes(kl, num_candidates))

    def merge(self, proposals: Payload) -> Payload:
        """The mean of the clients' sizes, rounded."""
        (sizes,) = proposals.expect(size=1)
        return self._message((sizes + 1).to(torch.float64).mean(0).round_().to(torch.int64))

    def read(self, allocation: Payload, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """Blocks of the size in the message."""
        (sizes,) = allocation.expect(size=1)
        return Blocks.fixed(dim, int(sizes[0, 0]) + 1, device)

    def _sizes(self, kl: Tensor, num_candidates: int) -> Tensor:
        """[M] int64 each client's proposal."""
        size = CAPACITIES[self.capacity](num_candidates) * kl.shape[1] / kl.sum(1, dtype=torch.float64)
        return size.clamp_(self.smallest, self.longest).round_().to(torch.int64)

    def _message(self, sizes: Tensor) -> Payload:
        coding = Unsigned(bits_for(self.longest), self.longest)
        return Payload({"size": Field(sizes[:, None] - 1, coding)})
