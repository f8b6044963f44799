"""SCAFFOLD: control variates take the clients' drift out of their local steps.

S. P. Karimireddy, S. Kale, M. Mohri, S. Reddi, S. Stich, A. T. Suresh, "SCAFFOLD: stochastic controlled averaging for
federated learning", ICML 2020, algorithm 1. With c_i at client i, c = mean c_i at the server, M of N clients a round:

    down    x, c
    local   y = x;  K_i times y <- y - eta_l (g_i(y) - c_i + c)
            c_i+ = g_i(x) (option I, a full local gradient), or c_i - c + (x - y) / (K_i eta_l) (option II)
    up      Delta_i = C(y - x),  delta_i = C(alpha (c_i+ - c_i));  c_i <- c_i + delta_i
    server  x <- x + eta_g (1/M) sum Delta_i;  c <- c + (1/N) sum delta_i

eta_g is `server.lr`. Its fixed point is x = x*, c_i = grad f_i(x*), c = 0, for every K_i and M. The paper does not
compress. Here a client adds to c_i what the server decoded. If it added what it meant to send, c would not be mean c_i,
and the limit would be wrong. Unbiased codecs diverge unless the change of c_i is scaled by alpha = 1 / (1 + omega) at
most.

Differs from the paper: the two messages through any codec without feedback; M is the size of the cohort also where
clients take part by coin. Two errors of another program (that of FedDyn's authors) are avoided: c_i+ has the round's
own eta_l, and every client's own K_i.

Shape legend: M clients of the cohort, N clients in all, D parameters, C running statistics.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.heterogeneity.control_variates import (
    ControlState,
    check_alpha,
    check_mean_gradient,
    check_no_pull,
    control_metrics,
    scale_of_changes,
    train_corrected,
)
from fedcomp.algorithm.updates.decoded_messages import check_decodable, send_decoded
from fedcomp.client import LocalData, LocalSolver
from fedcomp.client.full_gradient import full_gradient
from fedcomp.compressor import Compressor
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.server import ServerOptimizer

AT_ONCE = 64
"""Samples of a client at once, at least, in its full gradient; only rounding depends on it."""


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """Control variates in two vectors each way.

    Attributes:
        server: its learning rate is eta_g. uplink: C, carries both vectors. The downlink is dense: x and c, 64 D bits.
        alpha: None: 1 / (1 + omega) for unbiased codecs, 1 for those that only shrink.
    """

    client: LocalSolver
    server: ServerOptimizer
    uplink: Compressor
    option: Literal["I", "II"] = "II"
    alpha: float | None = None

    weights = "uniform"
    normalises_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.option == "II":
            check_mean_gradient("SCAFFOLD with algorithm.option=II", self.client)
        check_no_pull("SCAFFOLD", self.client)
        check_decodable("SCAFFOLD", self.uplink)
        check_alpha("SCAFFOLD", self.alpha, self.uplink)

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> ControlState:
        """The first model; all control variates are 0."""
        layers = tuple(tensor.size for tensor in setup.tensors)
        scale_of_changes(self.alpha, self.uplink, layers, setup.num_clients)
        self.uplink.init(setup.num_clients, theta)
        controls = theta.new_zeros(setup.num_clients, theta.shape[0])
        return ControlState(theta, stats, torch.zeros_like(theta), controls, self.server.init(theta))

    def round(self, state: ControlState, cohort: Cohort, ctx: Context) -> tuple[ControlState, Metrics]:
        """One round; metrics as of `control_metrics`."""
        start, stats = ctx.send_model(state.theta, state.stats, cohort)
        control = ctx.send_dense("control", state.control, cohort)
        own = take_rows(state.controls, cohort)
        local, change, _ = train_corrected(self.client, start, control, stats, own, cohort, ctx)
        if self.option == "I":
            change = local_gradients(self.client, start, stats, cohort, ctx) - own

        alpha = scale_of_changes(self.alpha, self.uplink, ctx.clients.layers, ctx.clients.num_clients)
        updates = send_decoded("update", self.uplink, local.value, cohort, ctx)
        changes = send_decoded("control", self.uplink, alpha * change, cohort, ctx)
        controls = put_rows(state.controls, cohort, own + changes)
        control = state.control + changes.sum(0) / ctx.clients.num_clients
        step, optimizer = self.server.step(updates.mean(0), state.optimizer, state.theta)
        stats = ctx.gather_stats(local.stats, cohort)
        metrics = control_metrics(local, own, control, controls, cohort)
        return ControlState(state.theta + step, stats, control, controls, optimizer), metrics


def local_gradients(client: LocalSolver, theta: Tensor, stats: Tensor, cohort: Cohort, ctx: Context) -> Tensor:
    """[M, D] grad f_i(theta) of each client at theta [D], with the local solver's weight decay as a part of f_i."""
    at_once = max(client.most_samples, AT_ONCE)

    def work(data: LocalData, theta: Tensor, stats: Tensor) -> Tensor:
        grad = full_gradient(data.samples(at_once), data.num_samples, theta, stats, 0, data.gradient).grad
        return grad.add_(theta, alpha=client.weight_decay)

    return ctx.clients.map_clients(work, cohort, theta.expand(cohort.size, -1), stats.expand(cohort.size, -1))
