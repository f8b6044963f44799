"""How the receiver turns a round's messages into one vector."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcomp.cohort import Cohort
from fedcomp.compressor.contract import Codec, Summing
from fedcomp.wire import Common, Payload


@dataclass(frozen=True)
class WeightedSum:
    """Decodes every message and sums them up with the cohort's weights; remembers nothing."""

    def check(self, codec: Codec) -> None:
        """It makes sense for all."""

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        return like.new_zeros(num_senders, 0)

    def estimate(
        self, codec: Codec, payload: Payload, memory: Tensor, cohort: Cohort, common: Common
    ) -> tuple[Tensor, Tensor]:
        if isinstance(codec, Summing):
            return codec.weighted_sum(payload, common, cohort.weight), memory
        return cohort.weight @ codec.decode(payload, common), memory


ESTIMATORS: dict[str, WeightedSum] = {"weighted_sum": WeightedSum()}
"""The short names that `compressor.estimator=<name>` takes; any other part is given by its `_target_`."""
