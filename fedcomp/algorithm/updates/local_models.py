"""For methods whose clients hold models of their own, and add to them at once what compression left out.

Shape legend: M clients (all take part), D parameters.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context
from fedcomp.algorithm.models import Models
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.compressor.estimators.estimator import WeightedSum
from fedcomp.compressor.feedback import NoFeedback
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Whole
from fedcomp.random.keys import Key
from fedcomp.server import ServerOptimizer
from fedcomp.server.sgd import Sgd


@dataclass(frozen=True)
class LocalModels(Algorithm):
    """Options of a method whose clients hold models x_i of their own.

    A client adds to its own model what its message left out, and so computes what the server makes of it: the uplink
    must have no memory but the method's, its messages must be summed, and the server's step must be lr times that sum.

    Attributes:
        server: its learning rate is eta, the step of every client. uplink: C, carries u_i. period: H.
    """

    client: LocalSolver
    server: ServerOptimizer
    uplink: Compressor
    downlink: Compressor
    period: Annotated[int, Whole()] = 50

    weights = "uniform"
    full_participation = True
    client_models = MappingProxyType({"test": ("theta",)})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.server, Sgd) or self.server.momentum:
            name = "sgd with momentum" if isinstance(self.server, Sgd) else type(self.server).__name__.lower()
            raise ValueError(
                f"server={name} makes no sense where clients step on their own, lr times a vector: use server=sgd"
            )
        if not isinstance(self.uplink.feedback, NoFeedback):
            raise ValueError(
                "compressor.feedback must be none: the algorithm itself makes up for what messages leave out"
            )
        for group, compressor in (("compressor", self.uplink), ("downlink", self.downlink)):
            if compressor.predicts:
                raise ValueError(f"{group}.predictor must be none: the algorithm has memories of its own")
            if not isinstance(compressor.estimator, WeightedSum):
                raise ValueError(
                    f"{group}.estimator must be weighted_sum: the algorithm counts on the sum of the messages"
                )

    def syncs(self, round_index: int) -> bool:
        """Whether this round, counted from 0, is the last of a period: rounds H - 1, 2 H - 1, ..."""
        return (round_index + 1) % self.period == 0

    def evaluation_models(self, state: Any, key: Key) -> dict[str, Models]:
        """The average model, which no client holds but after a synchronisation; the test's transfers cost nothing."""
        return {"test": Models(state.theta.mean(0, keepdim=True), state.stats[None])}


def send_up(name: str, uplink: Compressor, x: Tensor, cohort: Cohort, ctx: Context) -> tuple[Tensor, Tensor]:
    """Clients send x [M, D]; returns the mean that the server receives [D], and what messages left out [M, D]."""
    common, nothing = ctx.common(name, cohort), uplink.init(cohort.size, x[0])  # it remembers nothing
    payload, _ = uplink.encode(x, nothing, cohort, common, ctx.sender_key(name))
    left = x - uplink.decode(payload, common)
    mean, _ = uplink.estimate(ctx.link.up(payload), nothing, cohort, common)
    uplink.check_finite(ctx.link, x, payload, mean, common)
    return mean, left
