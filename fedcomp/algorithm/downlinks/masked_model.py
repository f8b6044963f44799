"""A downlink that sends the largest entries of the model, with their places, to those who take part.

Shape legend: M clients of the cohort, D parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.downlinks.downlink import Downlink
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.sparsifiers.topk import TopK, stable_topk
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Within

Density = Annotated[float, Within("(0, 1]", "the share of the model that is sent down")]
Masked = Literal["model", "update"]


@dataclass(frozen=True)
class MaskedModel(Downlink[Tensor, Tensor]):
    """The k = density D largest entries; its memory [D] is the first model, which both ends know.

    Attributes:
        density: in (0, 1]; 1: the model as it is, without places.
        mask: model: entries of the model, the others are 0. update: entries of what was learnt since the first model;
            the others are as they were there.
    """

    sends_model = True

    density: Density
    mask: Masked

    @property
    def compressor(self) -> Compressor:
        """What the entries are sent through."""
        return Compressor(Dense() if self.density == 1 else TopK(self.density))

    def model(self, theta: Tensor, memory: Tensor, cohort: Cohort, ctx: Context) -> tuple[Tensor, Tensor]:
        compressor, learnt = self.compressor, self.density < 1 and self.mask == "update"
        sent = theta - memory if learnt else theta
        if learnt and ctx.round == 0:
            return memory, memory  # nothing was learnt yet
        received, _ = ctx.send_down("model", compressor, sent, compressor.init(1, sent), cohort)
        return memory + received if learnt else received, memory

    def masked(self, theta: Tensor, first: Tensor) -> Tensor:
        """What a cohort would train from: theta [D] with `mask`, where `first` [D] is the first model."""
        if self.density == 1:
            return theta
        base = first if self.mask == "update" else theta.new_zeros(())
        learnt = theta - base
        kept = stable_topk(learnt.abs()[None], TopK(self.density).num_sent(len(theta)))[0]
        return theta.new_zeros(theta.shape).index_copy(0, kept, learnt[kept]) + base
