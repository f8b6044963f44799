"""DASHA and MARINA: clients send compressed changes of an estimate of their gradient, which becomes exact.

DASHA: A. Tyurin, P. Richtarik, "DASHA: distributed nonconvex optimization with communication compression and optimal
oracle complexity", ICLR 2023, algorithm 1 (gradient setting). MARINA: E. Gorbunov, K. Burlachenko, Z. Li, P. Richtarik,
"MARINA: faster non-convex distributed learning with compression", ICML 2021, algorithm 1. With h_i the client's last
gradient and g_i its estimate, which server and client both have:

    down    x
    local   h_i+ = grad f_i(x)
    up      DASHA:   m_i = C_i(h_i+ - h_i - a (g_i - h_i)),  a = 1 / (2 omega + 1);  g_i <- g_i + m_i
            MARINA:  with probability p: g_i <- h_i+, 32 D bits;  else m_i = C_i(h_i+ - h_i), g_i <- g_i + m_i
    server  x <- x - gamma mean g_i

gamma is `client.lr` times `server.lr`. DASHA starts from g_i = 0 and h_i = grad f_i(x^0), and never sends a whole
vector (`start=gradient`: one in the first round); MARINA's first round is whole. Both need unbiased C_i. The theory's
gamma is 1 / (L + L^ sqrt(omega (4 omega + 1) / n)) for DASHA, in the authors' program, and 1 / (L + L^ sqrt((1 - p)
omega / (p n))) for MARINA, with L of f (DASHA: the mean L_i) and L^ the root of the mean of L_i^2. That is cautious:
with DASHA 4 to 16 times as much still converged on quadratics.

a = 0 would keep the first error for ever; a = 1 with an unbiased C_i diverges. EF21 is DASHA's recursion with a = 1 and
a codec that only shrinks.

Shape legend: n clients, all take part, D parameters.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.exact.local_steps import check_client, check_no_stats, exactness, gradients
from fedcomp.algorithm.updates.decoded_messages import check_decodable, send_decoded
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Within
from fedcomp.server import ServerOptimizer, Slots

WHOLE = Compressor(Dense())
"""What carries whole vectors, 32 bits an entry."""


@dataclass(frozen=True)
class GradientEstimateState:
    """What lives from round to round.

    Attributes:
        theta: [D] x. stats: [0] the model has no running statistics. optimizer: memories of the server optimizer.
        gradients: [n, D] h_i, the clients' last gradients. estimates: [n, D] g_i, at server and clients.
    """

    theta: Tensor
    stats: Tensor
    optimizer: Slots
    gradients: Tensor
    estimates: Tensor


@dataclass(frozen=True)
class GradientEstimate(Algorithm):
    """Compressed changes of gradients.

    Attributes:
        client: gd, or sgd for stochastic gradients; its learning rate is gamma. server: steps along -gamma mean g_i.
        uplink: C_i, unbiased. start: zero, g_i = 0; gradient, g_i = h_i, sent whole in the first round.
    """

    client: LocalSolver
    server: ServerOptimizer
    uplink: Compressor
    estimate: Literal["dasha", "marina"] = "dasha"
    a: Annotated[float | None, Within("(0, 1]", "a probability")] = None
    p: Annotated[float | None, Within("(0, 1]", "a probability")] = None
    omega: Annotated[float | None, Within("[0, inf)")] = None
    start: Literal["zero", "gradient"] = "zero"

    weights = "uniform"
    full_participation = True

    when_slow = "one exact gradient a round learns slowly: more rounds, or a larger client.lr"

    def __post_init__(self) -> None:
        super().__post_init__()
        name = self.estimate.upper()
        check_client(name, self.client)
        check_decodable(name, self.uplink)
        if not self.uplink.codec.unbiased:
            raise ValueError(
                f"{name} needs an unbiased compressor, not {type(self.uplink.codec).__name__} as configured: take "
                "randk, permk or qsgd"
            )

    @property
    def config_name(self) -> str:
        """`dasha` or `marina`."""
        return self.estimate

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> GradientEstimateState:
        """The first model; the first round computes the first gradients."""
        check_no_stats(self.estimate.upper(), stats)
        self._omega(tuple(tensor.size for tensor in setup.tensors), setup.num_clients)
        self.uplink.init(setup.num_clients, theta)
        rows = theta.new_zeros(setup.num_clients, theta.shape[0])
        return GradientEstimateState(theta, stats, self.server.init(theta), rows, rows.clone())

    def round(
        self, state: GradientEstimateState, cohort: Cohort, ctx: Context
    ) -> tuple[GradientEstimateState, Metrics]:
        """One round.

        Metrics: `train/loss` [n]; `grad/norm` ||mean h_i||; `estimate/error` mean ||g_i - h_i||^2; `coin/full`, 1 in
        rounds of whole gradients; `exact`.
        """
        start = ctx.send_dense("model", state.theta, cohort)
        found, loss = gradients(self.client, start, state.stats, cohort, ctx)
        omega = self._omega(ctx.clients.layers, cohort.size)
        whole = self._whole(omega, ctx)
        if whole:
            estimates = send_decoded("gradient", WHOLE, found, cohort, ctx)
        else:
            last = state.gradients if ctx.round else found  # h_i of the first model
            change = found - last
            if self.estimate == "dasha":
                a = 1 / (2 * omega + 1) if self.a is None else self.a
                change = change - a * (state.estimates - last)
            estimates = state.estimates + send_decoded("change", self.uplink, change, cohort, ctx)
        update = estimates.mean(0) * -self.client.learning_rate(ctx.progress)
        step, optimizer = self.server.step(update, state.optimizer, state.theta)
        metrics = {
            "train/loss": loss,
            "grad/norm": torch.linalg.vector_norm(found.mean(0)),
            "estimate/error": (estimates - found).square().sum(1).mean(),
            "coin/full": update.new_full((), float(whole)),
            **exactness(self.client, update),
        }
        return GradientEstimateState(state.theta + step, state.stats, optimizer, found, estimates), metrics

    def _omega(self, layers: tuple[int, ...], num_clients: int) -> float:
        omega = self.uplink.omega(layers, num_clients) if self.omega is None else self.omega
        if omega is None:
            raise ValueError(
                f"the variance omega of {type(self.uplink.codec).__name__} has no closed form: give algorithm.omega"
            )
        return omega

    def _whole(self, omega: float, ctx: Context) -> bool:
        """Whether this round's messages are whole gradients: a coin that both ends toss from the round's key."""
        if self.estimate == "dasha":
            return self.start == "gradient" and ctx.round == 0
        p = 1 / (1 + omega) if self.p is None else self.p
        draw = ctx.key.fold_in("full").uniform(torch.zeros(1, dtype=torch.int64), 1)  # on the host, which must know
        return ctx.round == 0 or float(draw) < p
