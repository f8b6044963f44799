"""How the receiver turns a round's messages into one vector."""

from dataclasses import dataclass

from torch import Tensor

from fedcomp.compressor.contract import Codec, Estimator
from fedcomp.compressor.estimators.proj_spatial import ProjSpatial
from fedcomp.compressor.estimators.spatial import Spatial
from fedcomp.compressor.estimators.temporal import Temporal
from fedcomp.core.cohort import Cohort
from fedcomp.wire import Payload, SharedKnowledge


@dataclass(frozen=True)
class WeightedSum(Estimator):
    """Decodes every message and sums them up with the cohort's weights, without a memory."""

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        return like.new_zeros(num_senders, 0)

    def estimate(
        self, codec: Codec, payload: Payload, memory: Tensor, cohort: Cohort, common: SharedKnowledge
    ) -> tuple[Tensor, Tensor]:
        return codec.weighted_sum(payload, common, cohort.weight), memory

    def expected_error(self, codec: Codec, x: Tensor) -> Tensor | None:
        """0-d float64 E||estimate - mean of x||^2 for rows x [n, D] and weights 1/n; None without a closed form.

        Errors of unbiased codecs are independent over senders: (1/n^2) sum_i E||C(x_i) - x_i||^2.
        """
        each = codec.expected_error(x) if codec.unbiased else None
        return None if each is None else each.sum() / x.shape[0] ** 2


ESTIMATORS: dict[str, Estimator] = {
    "weighted_sum": WeightedSum(),
    "spatial_max": Spatial("max"),
    "spatial_avg": Spatial("avg"),
    "spatial_online": Spatial("online"),
    "proj_avg": ProjSpatial("avg"),
    "proj_max": ProjSpatial("max"),
    "proj_online": ProjSpatial("online"),
    "temporal": Temporal("client"),
    "temporal_shared": Temporal("shared"),
}
"""The short names that `compressor.estimator=<name>` takes; any other part is given by its `_target_`."""
