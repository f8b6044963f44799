"""What a block allocation is: when to cut anew, and the messages by which clients and server agree on new blocks.

A round with the divergences kl [M, D] that the clients know goes

    flags      = request(kl, blocks)              up, one bit a client; the server decides by `wanted`
    decision(wanted(flags))                       down to all, one bit, which the paper does not count
    proposals  = propose(kl)                      up, in the next round, only if wanted
    allocation = merge(proposals)                 down to all
    blocks     = read(allocation, dim, device)    at every end

and every message is charged when it is sent. kappa, the capacity of a block, is ln n_IS nats.

Shape legend: M clients, D entries, B blocks.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks, check_block
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Unsigned

SHARES = {"majority": 0.5, "any": 0.0}
"""By more than which share of the clients new blocks must be asked for."""


class Allocation(Protocol):
    """A strategy, with the size of the first blocks. Those of this alone never change."""

    @property
    def size(self) -> int: ...

    def first(self, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """The blocks of the first round."""
        ...


@runtime_checkable
class Changing(Allocation, Protocol):
    """A strategy whose blocks follow the divergences."""

    def request(self, kl: Tensor, blocks: Blocks, num_candidates: int) -> Payload:
        """One bit a client, `flag`: whether its divergences kl [M, D] are far from what the blocks can carry."""
        ...

    def wanted(self, flags: Payload) -> bool:
        """The server's decision, read back to the host."""
        ...

    def propose(self, kl: Tensor, num_candidates: int) -> Payload:
        """Each client's blocks for its divergences kl [M, D]."""
        ...

    def merge(self, proposals: Payload) -> Payload:
        """One row: the blocks that the server makes of the clients' proposals."""
        ...

    def read(self, allocation: Payload, dim: int, device: torch.device | str = "cpu") -> Blocks:
        """The blocks that `merge` sent."""
        ...


def flags(wish: Tensor) -> Payload:
    """One bit a client from wish [M] bool."""
    return Payload({"flag": Field(wish[:, None].to(torch.uint8), Unsigned(1))})


def decision(wanted: bool, device: torch.device | str = "cpu") -> Payload:
    """One row, one bit for all clients: whether they shall propose new blocks in the next round."""
    again = torch.full((1, 1), wanted, dtype=torch.uint8, device=device)
    return Payload({"again": Field(again, Unsigned(1))}, paper_bits=0)


def decided(message: Payload) -> Tensor:
    """[1] bool what the server decided."""
    (again,) = message.expect(again=1)
    return again[:, 0] > 0


def enough(message: Payload, vote: str) -> bool:
    """Whether enough clients raised their flag; reads it back."""
    (flag,) = message.expect(flag=1)
    return flag.shape[0] > 0 and float(flag.to(torch.float64).mean()) > SHARES[vote]


def check_trigger(phi: float, longest: int, smallest: int = 1) -> None:
    """Raise ValueError for options that no allocation can have."""
    if isinstance(phi, bool) or not isinstance(phi, (int, float)) or not 1 < phi < float("inf"):
        raise ValueError(
            f"phi={phi} must be a number above 1: the deviation from capacity at which blocks are cut anew"
        )
    check_block("longest", longest)
    check_block("smallest", smallest)
    if smallest > longest:
        raise ValueError(f"smallest={smallest} must be at most longest={longest}")
