"""LIEC: clients correct their own models at once by what their messages left out; models are averaged every H rounds.

Y. Cheng, L. Shen, L. Xu, X. Qian, S. Wu, Y. Zhou, T. Zhang, D. Tao, E. Chen, "Communication-efficient distributed
learning with local immediate error compensation" (LIEC-SGD), arXiv:2402.11857 (2024). With u_i the local change (minus
the pseudo-gradient) from client i's own model x_i, E the server's error memory:

    most rounds        c_i = C(u_i),  r_i = u_i - c_i                              up c_i
                       M = C(mean c + E),  E <- mean c + E - M                     down M
                       x_i <- x_i + eta (M + r_i)
    every H-th round   all x_i <- mean x + eta (mean u + E),  E <- 0               up, down x_i and u_i in float32

Messages of an averaging round are u_i from models that are not yet averaged. Sending x_i + eta u_i alone gives the same
models up to rounding, at half the bits (`fused_average`); two messages are the default, as the published tables count
them. Differs from the paper: epochs of local training instead of one gradient; no momentum.

Shape legend: N clients, all take part, D parameters, C running statistics.
"""

import functools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Metrics, Setup
from fedcomp.algorithm.updates.local_models import LocalModels, send_up
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.algorithm.updates.metrics import servers_memory
from fedcomp.compressor import Compressor, Memory
from fedcomp.compressor.dense import Dense
from fedcomp.core.cohort import Cohort

EXACT = Compressor(Dense())
"""What averaging rounds send through: every entry in float32, nothing remembered."""


@dataclass(frozen=True)
class LIECState:
    """What lives from round to round.

    Attributes:
        theta: [N, D] x_i, the clients' models. stats: [C] running statistics, the same everywhere.
        downlink: the downlink's memory; its only row is E.
    """

    theta: Tensor
    stats: Tensor
    downlink: Memory


@dataclass(frozen=True)
class LIEC(LocalModels):
    """Local immediate error compensation.

    Attributes:
        client, server, uplink: see `LocalModels`. downlink: carries the server's vector, with an error memory.
        period: H. fused_average: averaging rounds send x_i + eta u_i instead of both.
    """

    fused_average: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._down

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> LIECState:
        self.uplink.init(setup.num_clients, theta)
        return LIECState(theta.repeat(setup.num_clients, 1), stats, self._down.init(1, theta))

    def round(self, state: LIECState, cohort: Cohort, ctx: Context) -> tuple[LIECState, Metrics]:
        """One round; the last of each period averages the models. `memory/norm_down` is ||E||."""
        local, stats = train_locally(self.client, state.theta, state.stats, cohort, ctx)
        exchange = self._average if self.syncs(ctx.round) else self._compensate
        theta, downlink, mean = exchange(state, local.value, cohort, ctx)
        stats = ctx.send_stats(stats, ctx.everyone)
        return LIECState(theta, stats, downlink), {**training_metrics(local), **servers_memory(downlink, mean)}

    @functools.cached_property
    def _down(self) -> Compressor:
        """The downlink with an error memory. Raises ValueError: its codec cannot have one."""
        return self.downlink.with_error_feedback("downlink")

    def _compensate(
        self, state: LIECState, update: Tensor, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Memory, Tensor]:
        """The clients' models [N, D], the server's memory and what it had to send [D], from local changes [N, D]."""
        mean, residual = send_up("update", self.uplink, update, cohort, ctx)
        received, downlink = ctx.send_down("update", self._down, mean, state.downlink, cohort)
        step, _ = self.server.step(received + residual, (), state.theta)
        return state.theta + step, downlink, mean

    def _average(self, state: LIECState, update: Tensor, cohort: Cohort, ctx: Context) -> tuple[Tensor, Memory, Tensor]:
        """As `_compensate`, in float32, with the models."""
        error = self._down.sender_memory(state.downlink)[0]
        if self.fused_average:
            step, _ = self.server.step(update, (), state.theta)
            late, _ = self.server.step(error, (), state.theta)
            model = self._exchange("model", state.theta + step, late, cohort, ctx)
        else:
            average = self._exchange("model", state.theta, torch.zeros_like(error), cohort, ctx)
            mean = self._exchange("update", update, error, cohort, ctx)
            step, _ = self.server.step(mean, (), average)
            model = average + step
        downlink = replace(state.downlink, sender=torch.zeros_like(state.downlink.sender))
        return model.repeat(cohort.size, 1), downlink, cohort.weight @ update

    def _exchange(self, name: str, x: Tensor, more: Tensor, cohort: Cohort, ctx: Context) -> Tensor:
        """Clients send x [N, D]; what everybody receives [D]: the mean, and what the server adds to it."""
        mean, _ = send_up(name, EXACT, x, cohort, ctx)
        received, _ = ctx.send_down(name, EXACT, mean + more, EXACT.init(1, mean), cohort)
        return received
