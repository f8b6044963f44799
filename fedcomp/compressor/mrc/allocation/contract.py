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

Shape legend: M clients, D entries, B blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks, check_block
from fedcomp.core.validate import check_choice, is_number
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Unsigned

CAPACITIES = {"nats": math.log, "bits": math.log2}
"""{unit: kappa of n_IS candidates}."""
SHARES = {"majority": 0.5, "any": 0.0}
"""{vote: fraction of the clients that must be exceeded by those that request new blocks}."""


class Allocation(Protocol):
    """A strategy, with the size of the first blocks. Without `Changing` the blocks never change."""

    @property
    def size(self) -> int: ...

    def first(self, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """The blocks of the first round."""
        ...


@runtime_checkable
class Changing(Allocation, Protocol):
    """A strategy whose blocks follow the divergences."""

    def request(self, kl: Tensor, blocks: Blocks, num_candidates: int) -> Payload:
        """One bit per client, `flag`: whether its divergences kl [M, D] are far from the blocks' capacity."""
        ...

    def wanted(self, flags: Payload) -> bool:
        """The server's decision; synchronises."""
        ...

    def propose(self, kl: Tensor, num_candidates: int) -> Payload:
        """Each client's blocks for its divergences kl [M, D]."""
        ...

    def merge(self, proposals: Payload) -> Payload:
        """One row: the blocks that the server computes from the clients' proposals."""
        ...

    def read(self, allocation: Payload, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """The blocks that `merge` sent."""
        ...


def flags(requested: Tensor) -> Payload:
    """One bit per client: requested [M] bool."""
    return Payload({"flag": Field(requested[:, None].to(torch.uint8), Unsigned(1))})


def decision(wanted: bool, device: torch.device | str = "cpu") -> Payload:
    """One bit for all clients: whether they propose new blocks in the next round."""
    again = torch.full((1, 1), wanted, dtype=torch.uint8, device=device)
    return Payload({"again": Field(again, Unsigned(1))}, paper_bits=0)


def decided(message: Payload) -> Tensor:
    """[1] bool the server's decision."""
    (again,) = message.expect(again=1)
    return again[:, 0] > 0


def enough(message: Payload, vote: str) -> bool:
    """Whether enough clients set their flag; synchronises."""
    (flag,) = message.expect(flag=1)
    return flag.shape[0] > 0 and float(flag.to(torch.float64).mean()) > SHARES[vote]


def check_trigger(phi: float, longest: int, capacity: str, smallest: int = 1) -> None:
    """Raise ValueError for invalid options of an allocation."""
    check_choice("capacity", capacity, tuple(CAPACITIES))
    if not is_number(phi) or not 1 < phi < float("inf"):
        raise ValueError(
            f"phi={phi} must be a number above 1: the factor from capacity at which new blocks are requested"
        )
    check_block("longest", longest)
    check_block("smallest", smallest)
    if smallest > longest:
        raise ValueError(f"smallest={smallest} must be at most longest={longest}")


@dataclass(frozen=True)
class Fixed:
    """Blocks of one size for the whole run, with offsets 0, s, 2s, ..., D.

    Attributes:
        size: s; the last block has the remaining entries.
    """

    size: int = 256

    def __post_init__(self) -> None:
        check_block("size", self.size)

    def first(self, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """The blocks of every round."""
        return Blocks.fixed(dim, self.size, device)
