"""The probabilities of a mask on the way down, as the counts that the server's Beta posterior is made of.

Shape legend: d masked parameters.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.downlinks.downlink import Downlink
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import CheckedOptions, Within
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Unsigned, bits_for

PriorCount = Annotated[float, Within("[1, inf)", "with less the posterior has no mode")]
Smoothing = Literal["affine", "clip"]


@dataclass(frozen=True)
class MaskCounts:
    """What came up since the posterior's last reset.

    Attributes:
        ones: [d] masks that have a one. total: [1] masks.
    """

    ones: Tensor
    total: Tensor


@dataclass(frozen=True)
class BetaPosterior(CheckedOptions):
    """theta is the mode (a - 1) / (a + b - 2) with a = prior + ones, b = prior + total - ones, kept away from 0 and 1.

    Attributes:
        prior: lambda_0, at least 1. smoothing: affine, clamp + (1 - 2 clamp) mode, or clip to [clamp, 1 - clamp].
    """

    prior: PriorCount
    smoothing: Smoothing
    clamp: float
    prefix = "algorithm."

    def mode(self, counts: MaskCounts) -> Tensor:
        """theta [d]."""
        mode = (self.prior - 1 + counts.ones) / (2 * self.prior - 2 + counts.total)
        if self.smoothing == "clip":
            return mode.clamp(self.clamp, 1 - self.clamp)
        return self.clamp + (1 - 2 * self.clamp) * mode


@dataclass(frozen=True)
class CountsDownlink(Downlink[MaskCounts, Tensor]):
    """The counts to those who take part, whose `posterior` makes theta of them; nothing before masks came up."""

    sends_model = True

    posterior: BetaPosterior

    def model(self, theta: Tensor, memory: MaskCounts, cohort: Cohort, ctx: Context) -> tuple[Tensor, MaskCounts]:
        """theta [d] as the cohort makes it."""
        if ctx.round == 0:
            return theta, memory
        total = int(memory.total[0])
        sent = Field(memory.total.to(torch.int64)[None], Unsigned(32))
        if not total:  # no client has taken part yet
            ctx.link.broadcast(Payload({"total": sent}), cohort).expect(total=1)
            return theta, memory
        coding = Unsigned(bits_for(total + 1), total + 1)
        fields = {"total": sent, "ones": Field(memory.ones.to(torch.int64)[None], coding)}
        num, ones = ctx.link.broadcast(Payload(fields), cohort).expect(total=1, ones=theta.shape[0])
        return self.posterior.mode(MaskCounts(ones[0].to(torch.float32), num[0].to(torch.float32))), memory
