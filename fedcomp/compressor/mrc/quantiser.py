"""The quantiser Q_s whose last, random bit is left to minimal random coding: BiCompFL-GR-CFL, arXiv:2502.00206.

    r_e = s |g_e| / ||g||_2,   tau_e = min(floor(r_e), s - 1),   q_e = r_e - tau_e,
    decoded: ||g|| sign(g_e) (tau_e + bit_e) / s

bit_e, which is one with probability q_e, is the sample that is coded; the rest travels beside it: the norm in 32 bits,
a sign an entry, and tau_e + 1 in Elias' omega code (the paper's gamma code has the same lengths up to 3). With at least
one bit an entry for the signs alone this is a device of the theory; its contraction needs s >= sqrt(2 d).

Shape legend: M senders, D entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.core.validate import check_count
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Elias, Float, Unsigned


def check_levels(name: str, levels: int) -> None:
    """Raise ValueError unless there can be `levels` levels."""
    check_count(name, levels)
    if levels > 1 << 23:
        raise ValueError(f"{name}={levels} must be at most {1 << 23}: a float32 tells no more apart")


@dataclass(frozen=True)
class Quantised:
    """Updates without their last bit.

    Attributes:
        norm: [M, 1] float32 ||g||_2. negative: [M, D] uint8, 1 where g < 0. tau: [M, D] int32 in 0, ..., s - 1.
        levels: s.
    """

    norm: Tensor
    negative: Tensor
    tau: Tensor
    levels: int

    @classmethod
    def of(cls, g: Tensor, levels: int) -> tuple[Quantised, Tensor]:
        """(all but the last bit of updates g [M, D], the posterior q [M, D] of that bit)."""
        norm = torch.linalg.vector_norm(g, dim=1, keepdim=True)
        ratio = torch.where(norm > 0, g.abs() / norm, 0.0) * levels
        tau = ratio.floor().clamp_(max=levels - 1)
        posterior = (ratio - tau).clamp_(0.0, 1.0)
        return cls(norm, (g < 0).to(torch.uint8), tau.to(torch.int32), levels), posterior

    @property
    def fields(self) -> dict[str, Field]:
        """What travels beside the indices of the last bits."""
        return {
            "norm": Field(self.norm, Float()),
            "signs": Field(self.negative, Unsigned(1)),
            "tau": Field(self.tau + 1, Elias(self.levels + 1)),
        }

    @classmethod
    def received(cls, payload: Payload, levels: int, dim: int) -> Quantised:
        """What `fields` of a message hold, whatever else is in it."""
        own = Payload({name: payload.fields[name] for name in ("norm", "signs", "tau") if name in payload.fields})
        norm, negative, tau = own.expect(norm=1, signs=dim, tau=dim)
        return cls(norm, negative, tau - 1, levels)

    def values(self, bits: Tensor) -> Tensor:
        """[M, D] float32 the decoded updates, for last bits [M, D], or the means of several, in [0, 1]."""
        signs = 1 - 2 * self.negative.to(torch.float32)
        return self.norm * signs * (self.tau.to(torch.float32) + bits) / self.levels
