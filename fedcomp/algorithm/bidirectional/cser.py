"""CSER: clients apply at once what their messages left out, and every H rounds send part of it to the others.

C. Xie, S. Zheng, O. Koyejo, I. Gupta, M. Li, H. Lin, "CSER: communication-efficient SGD with error reset", NeurIPS
2020, with one compressor C for both kinds of message, as in the experiments of BiCompFL that take it as
baseline. With u_i the local change (minus the pseudo-gradient) from client i's own model x_i:

    every round        c_i = C(u_i),  r_i = u_i - c_i                         up c_i, down mean c
                       x_i <- x_i + eta (mean c + r_i),  a_i <- a_i + r_i
    every H-th round   s_i = C(a_i),  a_i <- a_i - s_i                        up s_i, down mean s
                       x_i <- x_i + eta (mean s - s_i)

So the mean model moves by eta mean u_i in every round, as without compression, and x_i - mean x = eta (a_i - mean a)
always: a reset brings models together as far as C(a_i) is a_i, and makes them equal if C is lossless. Differs from the
paper: epochs of local training instead of one gradient; no momentum; messages down go through any compressor (dense
unless chosen), whose own error feedback, if any, makes up for what they leave out.

Shape legend: N clients, all take part, D parameters, C running statistics.
"""

from dataclasses import dataclass

from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics, Setup
from fedcomp.algorithm.updates.local_models import LocalModels, send_up
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.algorithm.updates.metrics import lengths, servers_memory
from fedcomp.compressor import Compressor, Memory
from fedcomp.core.cohort import Cohort


@dataclass(frozen=True)
class CSERState:
    """What lives from round to round.

    Attributes:
        theta: [N, D] x_i, the clients' models. error: [N, D] a_i, residuals applied since they were last sent.
        stats: [C] running statistics, the same everywhere. downlink: the downlink's memory.
    """

    theta: Tensor
    error: Tensor
    stats: Tensor
    downlink: Memory


@dataclass(frozen=True)
class CSER(LocalModels):
    """Error reset: the uplink carries u_i and every `period` (H) rounds a_i, the downlink their means."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._with_error_memory()

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> CSERState:
        self._with_error_memory().init(1, theta)  # refuses sizes; a_i itself is in the state
        models = theta.repeat(setup.num_clients, 1)
        return CSERState(models, models.new_zeros(models.shape), stats, self.downlink.init(1, theta))

    def round(self, state: CSERState, cohort: Cohort, ctx: Context) -> tuple[CSERState, Metrics]:
        """One round, with a reset at the end of each period; `memory/norm` [N] is ||a_i||."""
        local, stats = train_locally(self.client, state.theta, state.stats, cohort, ctx)
        mean, residual = send_up("update", self.uplink, local.value, cohort, ctx)
        received, downlink = ctx.send_down("update", self.downlink, mean, state.downlink, cohort)
        stats = ctx.send_stats(stats, ctx.everyone)

        error, move = state.error + residual, received + residual
        if self.syncs(ctx.round):
            mean, left = send_up("reset", self.uplink, error, cohort, ctx)
            received, downlink = ctx.send_down("reset", self.downlink, mean, downlink, cohort)
            error, move = left, move + received - (error - left)
        step, _ = self.server.step(move, (), state.theta)
        metrics = {**training_metrics(local), "memory/norm": lengths(error), **servers_memory(downlink, mean)}
        return CSERState(state.theta + step, error, stats, downlink), metrics

    def _with_error_memory(self) -> Compressor:
        """The uplink with error feedback, since a_i is an error memory. Raises ValueError: C cannot have one."""
        return self.uplink.with_error_feedback("compressor")
