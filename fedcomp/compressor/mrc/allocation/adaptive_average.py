"""Blocks of one size that follows the mean divergence: BiCompFL's Adaptive-Avg, arXiv:2502.00206.

A client requests new blocks if the mean divergence of its blocks differs from the capacity kappa (contract.py) by more
than the factor phi. Then each client proposes s_i = clip(round(kappa d / sum of its divergences), smallest, longest),
and the server broadcasts the rounded mean. The paper specifies neither phi nor the kind of mean.

Shape legend: M clients.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.compressor.mrc.allocation.contract import Changing, flags
from fedcomp.compressor.mrc.blocks import Blocks, BlockSize
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Unsigned, bits_for


@dataclass(frozen=True, kw_only=True)
class AdaptiveAverage(Changing):
    """One size for all blocks; ceil(log2(longest)) bits from each client and to all, when it changes.

    Attributes:
        smallest: the least entries of a later block. phi: of the mean divergence.
    """

    smallest: BlockSize = 16
    two_sided: bool = True
    vote: Literal["majority", "any"] = "any"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smallest > self.longest:
            raise ValueError(f"algorithm.smallest={self.smallest} must be at most longest={self.longest}")

    def request(self, kl: Tensor, blocks: Blocks, num_candidates: int) -> Payload:
        """One bit per client: whether its mean divergence is off by more than phi and another size would help."""
        ratio = kl.sum(1, dtype=torch.float64) / blocks.num / self.kappa(num_candidates)
        low = ratio < 1 / self.phi
        others = self._sizes(kl, num_candidates).clamp_(max=kl.shape[1]) != blocks.longest
        return flags(others & ((ratio > self.phi) | low if self.two_sided else low))

    def propose(self, kl: Tensor, num_candidates: int) -> Payload:
        """The size at which each client's blocks reach capacity; `longest` without divergence."""
        return self._message(self._sizes(kl, num_candidates))

    def merge(self, proposals: Payload) -> Payload:
        """The mean of the clients' sizes, rounded."""
        (sizes,) = proposals.expect(size=1)
        return self._message((sizes + 1).to(torch.float64).mean(0).round_().to(torch.int64))

    def read(self, allocation: Payload, dim: int, device: torch.device | str = "cpu") -> Blocks:
        (sizes,) = allocation.expect(size=1)
        return Blocks.fixed(dim, int(sizes[0, 0]) + 1, device)

    def _sizes(self, kl: Tensor, num_candidates: int) -> Tensor:
        """[M] int64 each client's proposal."""
        size = self.kappa(num_candidates) * kl.shape[1] / kl.sum(1, dtype=torch.float64)
        return size.clamp_(self.smallest, self.longest).round_().to(torch.int64)

    def _message(self, sizes: Tensor) -> Payload:
        coding = Unsigned(bits_for(self.longest), self.longest)
        return Payload({"size": Field(sizes[:, None] - 1, coding)})
