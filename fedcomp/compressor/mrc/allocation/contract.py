"""The contract of block allocations: when to choose new blocks, and how clients and server agree on them.

With divergences kl [M, D] that the clients know, a round has the steps

    flags      = request(kl, blocks)              uplink, one bit per client; the server decides by `wanted`
    decision(wanted(flags))                       broadcast, one bit, which the paper does not count
    proposals  = propose(kl)                      uplink in the next round, if wanted
    allocation = merge(proposals)                 broadcast
    blocks     = read(allocation, dim, device)    at every end

and every message is counted. kappa is the capacity of a block, to which its divergence in nats is compared: ln n_IS
(`capacity: nats`), as the coder needs it. `capacity: bits` takes log2 n_IS for it, the length of an index: blocks 1.44
times as long, above what they can carry. The paper does not say which (docs/results/bicompfl.md compares their bits).

Shape legend: M clients, D entries.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks, BlockSize
from fedcomp.core.ranges import CheckedOptions, Within
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Unsigned

Capacity = Literal["nats", "bits"]
CAPACITIES = {"nats": math.log, "bits": math.log2}
"""{unit: kappa of n_IS candidates}."""
SHARES = {"majority": 0.5, "any": 0.0}
"""{vote: fraction of the clients that must be exceeded by those that request new blocks}."""


@dataclass(frozen=True)
class Fixed(CheckedOptions):
    """Blocks of one size for the whole run, with offsets 0, s, 2s, ..., D; the last has the remaining entries."""

    size: BlockSize = 256
    prefix = "algorithm."

    def first(self, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """The blocks of the first round, before divergences are known."""
        return Blocks.fixed(dim, self.size, device)


@dataclass(frozen=True)
class Changing(Fixed, ABC):
    """Blocks that follow the divergences.

    Attributes:
        phi: factor from capacity at which new blocks are requested. two_sided: in both directions.
        vote: majority or any: how many clients must request new blocks. capacity: nats or bits, the unit of kappa.
    """

    longest: BlockSize = 4096
    phi: Annotated[float, Within("(1, inf)", "the factor from capacity at which new blocks are requested")] = 3.0
    two_sided: bool = False
    vote: Literal["majority", "any"] = "majority"
    capacity: Capacity = "nats"

    def kappa(self, num_candidates: int) -> float:
        """The capacity of a block."""
        return CAPACITIES[self.capacity](num_candidates)

    @abstractmethod
    def request(self, kl: Tensor, blocks: Blocks, num_candidates: int) -> Payload:
        """One bit per client, `flag`: whether its divergences kl [M, D] are far from the blocks' capacity."""

    def wanted(self, flags: Payload) -> bool:
        """The server's decision, whether enough clients requested new blocks; synchronises."""
        (flag,) = flags.expect(flag=1)
        return flag.shape[0] > 0 and float(flag.to(torch.float64).mean()) > SHARES[self.vote]

    @abstractmethod
    def propose(self, kl: Tensor, num_candidates: int) -> Payload:
        """Each client's blocks for its divergences kl [M, D]."""

    @abstractmethod
    def merge(self, proposals: Payload) -> Payload:
        """One row: the blocks that the server computes from the clients' proposals."""

    @abstractmethod
    def read(self, allocation: Payload, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """The blocks that `merge` sent."""


def flags(requested: Tensor) -> Payload:
    """One bit per client: requested [M] bool."""
    return Payload({"flag": Field(requested[:, None].to(torch.uint8), Unsigned(1))})


def decision(wanted: bool, device: torch.device) -> Payload:
    """One bit for all clients: whether they propose new blocks in the next round."""
    again = torch.full((1, 1), wanted, dtype=torch.uint8, device=device)
    return Payload({"again": Field(again, Unsigned(1))}, paper_bits=0)


def decided(message: Payload) -> Tensor:
    """[1] bool the server's decision."""
    (again,) = message.expect(again=1)
    return again[:, 0] > 0
