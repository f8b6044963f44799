"""For methods whose clients hold models of their own, and add to them at once what compression left out.

Shape legend: M = N clients (all take part), D parameters.
"""

from __future__ import annotations

from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.compressor import Compressor
from fedcomp.compressor.estimators.estimator import WeightedSum
from fedcomp.compressor.feedback import NoFeedback
from fedcomp.core.cohort import Cohort
from fedcomp.server import ServerOptimizer
from fedcomp.server.sgd import Sgd


def check_parts(server: ServerOptimizer, uplink: Compressor, downlink: Compressor) -> None:
    """Raise ValueError unless a client can compute what the server makes of its message.

    It adds to its own model what the message left out. So the uplink must have no memory but the method's, its messages
    must be summed, and the server's step must be lr times that sum.
    """
    if not isinstance(server, Sgd) or server.momentum:
        name = "sgd with momentum" if isinstance(server, Sgd) else type(server).__name__.lower()
        raise ValueError(
            f"server={name} makes no sense where clients step on their own, lr times a vector: use server=sgd"
        )
    if not isinstance(uplink.feedback, NoFeedback):
        raise ValueError("compressor.feedback must be none: the algorithm itself makes up for what messages leave out")
    for group, compressor in (("compressor", uplink), ("downlink", downlink)):
        if compressor.predicts:
            raise ValueError(f"{group}.predictor must be none: the algorithm has memories of its own")
        if not isinstance(compressor.estimator, WeightedSum):
            raise ValueError(f"{group}.estimator must be weighted_sum: the algorithm counts on the sum of the messages")


def send_up(name: str, uplink: Compressor, x: Tensor, cohort: Cohort, ctx: Context) -> tuple[Tensor, Tensor]:
    """Clients send x [M, D]; returns the mean that the server receives [D], and what messages left out [M, D]."""
    common, nothing = ctx.common(name, cohort), uplink.init(cohort.size, x[0])  # `check_parts`: it remembers nothing
    payload, _ = uplink.encode(x, nothing, cohort, common, ctx.sender_key(name))
    left = x - uplink.decode(payload, common)
    mean, _ = uplink.estimate(ctx.link.up(payload), nothing, cohort, common)
    return mean, left


def is_sync_round(round_index: int, period: int) -> bool:
    """Whether this round, counted from 0, is the last of a period: rounds H - 1, 2 H - 1, ..."""
    return (round_index + 1) % period == 0
