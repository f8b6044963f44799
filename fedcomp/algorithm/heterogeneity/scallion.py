"""SCALLION: SCAFFOLD with one compressed vector up instead of two.

X. Huang, P. Li, X. Li, "Stochastic controlled averaging for federated learning with communication compression", ICLR
2024 (arXiv:2308.08165), algorithm 1; with a codec that only shrinks and alpha = 1 it is their SCAFCOM without client
momentum. With c_i at client i, c = mean c_i, M of N clients a round, local steps along g_i(y) - c_i + c:

    down    x, c
    local   K steps from x to y_i;  delta_i = (x - y_i) / (K eta_l) - c
    up      m_i = C(alpha delta_i);  c_i <- c_i + m_i
    server  x <- x - eta_g eta_l K ((1/M) sum m_i / alpha + c);  c <- c + (1/N) sum m_i

With a dense codec and alpha = 1 it is SCAFFOLD with option II. `sends=mean_update` sends q = (1/M) sum m_i to all N
clients instead of x and c to M, as both follow from it, beside M, and K where it is a mean (32 bits each, which no
paper counts): half as much, or less through a codec. Everybody, the server too, then goes on with the q that was
decoded. A lossy codec needs the error memory at the server: without it c is never mean c_i again, and the limit is
wrong.

Differs from the paper: where clients differ in their numbers of steps (epochs), each divides by its own K_i, which it
sends in 32 bits, and the server takes their mean for K, as in FedNova; M is the size of the cohort also where clients
take part by coin. The theorem wants alpha of about 1 / (4 (1 + omega)); 1 / (1 + omega) converged where it was tried.

Shape legend: M clients of the cohort, N clients in all, C running statistics.
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
from fedcomp.algorithm.updates.metrics import servers_memory
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor, Memory
from fedcomp.compressor.feedback import NoFeedback
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.server import ServerOptimizer
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float, Unsigned


@dataclass(frozen=True)
class ScallionState(ControlState):
    """What lives from round to round. `downlink`: the downlink's memory."""

    downlink: Memory


@dataclass(frozen=True)
class Scallion(Algorithm):
    """Control variates in one compressed vector.

    Attributes:
        client: plain steps. server: its learning rate is eta_g. uplink: C. downlink: carries q, or x and c if it is
            dense.
        alpha: None: 1 / (1 + omega) for unbiased codecs, 1 for those that only shrink.
        sends: "model", x and c to those who take part; "mean_update", q to all; "auto": model if the downlink is dense,
            in float32.
    """

    client: LocalSolver
    server: ServerOptimizer
    uplink: Compressor
    downlink: Compressor
    alpha: float | None = None
    sends: Literal["auto", "model", "mean_update"] = "auto"

    weights = "uniform"
    normalises_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mean_gradient("SCALLION", self.client)
        check_no_pull("SCALLION", self.client)
        check_decodable("SCALLION", self.uplink)
        check_alpha("SCALLION", self.alpha, self.uplink)
        name = type(self.downlink.codec).__name__
        if self.sends == "model" and not self._exact_downlink:
            raise ValueError(
                f"algorithm.sends=model needs a dense downlink of float32, not {name}: use auto or mean_update"
            )
        if not self._exact_downlink and isinstance(self.downlink.feedback, NoFeedback):
            raise ValueError(
                f"downlink.feedback=none makes the control variates of server and clients differ for ever with {name}: "
                "take a codec that only shrinks, with downlink.feedback=error, or a dense downlink of float32"
            )

    @property
    def sends_model(self) -> bool:
        """Whether x and c go down before the clients train."""
        return self.sends == "model" or (self.sends == "auto" and self._exact_downlink)

    @property
    def _exact_downlink(self) -> bool:
        """Whether the downlink loses nothing; floats of 16 bits lose something."""
        return self.downlink.codec.near_lossless and self.downlink.codec.unbiased

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> ScallionState:
        """The first model; all control variates are 0."""
        layers = tuple(tensor.size for tensor in setup.tensors)
        scale_of_changes(self.alpha, self.uplink, layers, setup.num_clients)
        self.uplink.init(setup.num_clients, theta)
        controls = theta.new_zeros(setup.num_clients, theta.shape[0])
        downlink = self.downlink.init(1, theta)
        return ScallionState(theta, stats, torch.zeros_like(theta), controls, self.server.init(theta), downlink)

    def round(self, state: ScallionState, cohort: Cohort, ctx: Context) -> tuple[ScallionState, Metrics]:
        """One round; metrics as of `control_metrics`, and the server's memory."""
        start, control, stats = state.theta, state.control, state.stats
        if self.sends_model:
            start, stats = ctx.send_model(start, stats, cohort)
            control = ctx.send_dense("control", control, cohort)
        own = take_rows(state.controls, cohort)
        local, change, num_steps = train_corrected(self.client, start, control, stats, own, cohort, ctx)

        num_clients = ctx.clients.num_clients
        alpha = scale_of_changes(self.alpha, self.uplink, ctx.clients.layers, num_clients)
        mean_steps = self._mean_steps(num_steps, ctx)
        sent = send_decoded("control", self.uplink, alpha * change, cohort, ctx)
        stats = ctx.gather_stats(local.stats, cohort)
        mean, downlink = sent.mean(0), state.downlink
        metrics: Metrics = {}
        if not self.sends_model:
            mean_steps = self._send_sizes(cohort, mean_steps, mean, ctx)
            whole = mean
            mean, downlink = ctx.send_down("mean", self.downlink, whole, downlink, ctx.everyone)
            stats = ctx.send_stats(stats, ctx.everyone)
            metrics = servers_memory(downlink, whole)

        lr = self.client.learning_rate(ctx.progress)
        step, optimizer = self.server.step((mean / alpha + control) * (-lr * mean_steps), state.optimizer, state.theta)
        control = control + mean * (cohort.size / num_clients)
        controls = put_rows(state.controls, cohort, own + sent)
        metrics = {**control_metrics(local, own, control, controls, cohort), **metrics}
        return ScallionState(state.theta + step, stats, control, controls, optimizer, downlink), metrics

    def _mean_steps(self, num_steps: Tensor, ctx: Context) -> Tensor | int:
        """K: the number of steps that all make, or the mean of K_i [M, 1], which the clients then send."""
        if self.client.batching.steps is not None:
            return self.client.batching.steps
        payload = Payload({"steps": Field(num_steps, Unsigned(32), on_paper=False)})
        (received,) = ctx.link.up(payload).expect(steps=1)
        return received.to(torch.float32).mean()

    def _send_sizes(self, cohort: Cohort, mean_steps: Tensor | int, like: Tensor, ctx: Context) -> Tensor | int:
        """K as all N clients then know it. They are sent M, and K where it is a mean; no idle client knows either."""
        participants = torch.full((1, 1), cohort.size, device=like.device)
        fields = {"participants": Field(participants, Unsigned(32), on_paper=False)}
        if not isinstance(mean_steps, Tensor):
            ctx.link.broadcast(Payload(fields), ctx.everyone)
            return mean_steps
        fields["steps"] = Field(mean_steps.view(1, 1), Float(), on_paper=False)
        received = ctx.link.broadcast(Payload(fields), ctx.everyone)
        return received.expect(participants=1, steps=1)[1][0, 0]
