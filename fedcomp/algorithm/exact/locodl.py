"""LoCoDL: local steps and compressed communication, both of which accelerate, to the exact optimum.

L. Condat, A. Maranjyan, P. Richtarik, "LoCoDL: communication-efficient distributed learning with local training and
compression", ICLR 2025 (arXiv:2403.04348). f = mean f_i is minimised. A part q / 2 ||x||^2, q = mu / 2, is taken out of
every f_i and given to everybody, so that all parts are mu / 2-strongly convex. With x_i, u_i at client i, and copies of
y, v at server and clients (mean u_i + v = 0 always), an iteration is

    xhat_i = x_i - gamma (grad f_i(x_i) - q x_i - u_i),   yhat = y - gamma (q y - v)
    with probability 1 - p:  x_i = xhat_i,  y = yhat
    with probability p:      d_i = C_i(xhat_i - yhat) up,   dbar = (1 / (2 n)) sum d_i down
                             x_i = (1 - rho) xhat_i + rho (yhat + dbar),   y = yhat + rho dbar
                             u_i += s (dbar - d_i),   v += s dbar,   s = p chi / (gamma (1 + 2 omega))

A round here is the iterations up to and with a communication, a number drawn from Geometric(p), the same in law as the
coin. Of the 1/2 in dbar: y weighs as much as all clients together. gamma is `client.lr`; 1/L is better than the
theory's largest 2/L, since the dual step goes with 1/gamma. If

    2 rho - rho^2 (1 + omega_av) - chi >= 0

it converges linearly, by tau = max((1 - gamma mu/2)^2, (1 - gamma L)^2, 1 - p^2 chi / (1 + 2 omega)) an iteration for
Psi = (1/gamma)(sum ||x_i - x*||^2 + n ||y - x*||^2) + gamma (1 + 2 omega)/(p^2 chi) (sum ||u_i - u_i*||^2 +
n ||v - v*||^2); rho = chi = 1 / (1 + omega_av) is the default. p=null balances the first and the last term:
p = sqrt((1 + 2 omega)(1 + omega_av)(1 - (1 - gamma mu / 2)^2)).

Biased codecs are not covered; one with `omega` given by hand is let through (Top-k with omega=0 did converge).

Shape legend: n clients, all take part, D parameters.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Models, Setup
from fedcomp.algorithm.exact.local_steps import (
    Constant,
    check_client,
    check_constant_step,
    check_constants,
    check_no_stats,
    exactness,
    geometric,
    train_shifted,
    warn_once,
)
from fedcomp.algorithm.updates.decoded_messages import check_decodable, send_decoded
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Within
from fedcomp.random.keys import Key

ROUNDING = 1e-9

DualStep = Annotated[float | None, Within("(0, inf)", "a step of LoCoDL; null: 1 / (1 + omega_av)")]


@dataclass(frozen=True)
class LoCoDLState:
    """What lives from round to round.

    Attributes:
        theta: [D] y. stats: [0] the model has no running statistics.
        models: [n, D] x_i. duals: [n, D] u_i. dual: [D] v.
    """

    theta: Tensor
    stats: Tensor
    models: Tensor
    duals: Tensor
    dual: Tensor


@dataclass(frozen=True)
class Constants:
    """What follows from options, codec and number of clients: p, rho, chi, and s, the length of a dual step."""

    p: float
    rho: float
    chi: float
    dual_step: float


@dataclass(frozen=True)
class LoCoDL(Algorithm):
    """Local steps, compressed differences from a common point.

    Attributes:
        client: gd, or sgd for stochastic gradients; its learning rate is gamma. uplink: C_i, unbiased.
        smoothness, convexity: L and mu of the f_i. relay: the messages d_i go to all others instead of dbar.
    """

    client: LocalSolver
    uplink: Compressor
    p: Annotated[float | None, Within("(0, 1]", "a probability")] = 0.2
    rho: DualStep = None
    chi: DualStep = None
    omega: Annotated[float | None, Within("[0, inf)")] = None
    smoothness: Constant = None
    convexity: Constant = None
    schedule: Literal["random", "period"] = "random"
    relay: bool = False

    weights = "uniform"
    full_participation = True
    client_models = MappingProxyType({"mean": ("models",)})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_client("LoCoDL", self.client)
        check_constant_step("LoCoDL", self.client)
        check_decodable("LoCoDL", self.uplink)
        check_constants(self.smoothness, self.convexity, self.client.lr)
        if self.schedule == "period" and self.smoothness is not None and self.client.lr > 1.5 / self.smoothness:
            raise ValueError(
                "algorithm.schedule=period needs client.lr of at most 1.5 / algorithm.smoothness, not "
                f"{self.client.lr}: take less, or algorithm.schedule=random"
            )
        if not self.uplink.codec.unbiased and self.omega is None:
            raise ValueError(
                f"LoCoDL needs an unbiased compressor, not {type(self.uplink.codec).__name__} as configured: take "
                "randk or qsgd, or give algorithm.omega, which no theory covers"
            )
        if self.p is None and not self._mu:
            raise ValueError(
                "algorithm.p=null is computed from algorithm.convexity (or client.weight_decay): give it, or p"
            )

    @property
    def _mu(self) -> float:
        return self.convexity if self.convexity is not None else float(self.client.weight_decay)

    def constants(self, layers: tuple[int, ...], num_clients: int) -> Constants:
        """Those for parameter tensors of these sizes. Raises ValueError: omega is unknown."""
        omega, of_mean = self.omega, None
        if omega is None:
            omega, of_mean = self.uplink.omega(layers, num_clients), self.uplink.omega_of_mean(layers, num_clients)
        if omega is None:
            raise ValueError(
                f"the variance omega of {type(self.uplink.codec).__name__} has no closed form: give algorithm.omega"
            )
        of_mean = omega / num_clients if of_mean is None else of_mean
        rho = 1 / (1 + of_mean) if self.rho is None else self.rho
        chi = 1 / (1 + of_mean) if self.chi is None else self.chi
        if 2 * rho - rho**2 * (1 + of_mean) - chi < -ROUNDING:
            warn_once(
                f"LoCoDL with rho={rho:.3g}, chi={chi:.3g} and omega_av={of_mean:.3g} is outside of its theory, which "
                "wants 2 rho - rho^2 (1 + omega_av) >= chi"
            )
        gamma, p = self.client.lr, self.p
        if p is None:
            p = min(1.0, math.sqrt((1 + 2 * omega) * (1 + of_mean) * (1 - (1 - gamma * self._mu / 2) ** 2)))
        return Constants(p, rho, chi, p * chi / (gamma * (1 + 2 * omega)))

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> LoCoDLState:
        """x_i = y = the first model, u_i = v = 0."""
        check_no_stats("LoCoDL", stats)
        self.constants(tuple(tensor.size for tensor in setup.tensors), setup.num_clients)
        self.uplink.init(setup.num_clients, theta)
        models = theta.repeat(setup.num_clients, 1)
        return LoCoDLState(theta, stats, models, torch.zeros_like(models), torch.zeros_like(theta))

    def round(self, state: LoCoDLState, cohort: Cohort, ctx: Context) -> tuple[LoCoDLState, Metrics]:
        """Iterations up to a communication.

        Metrics: `train/loss` [n]; `local/steps`; `control/sum` ||mean u_i + v||; `models/spread` mean ||x_i - y||^2;
        `exact`.
        """
        constants = self.constants(ctx.clients.layers, cohort.size)
        steps = max(1, round(1 / constants.p))
        if self.schedule == "random":
            steps = geometric(constants.p, ctx.key.fold_in("steps"))
        gamma, q = self.client.lr, self._mu / 2
        y = state.theta
        for _ in range(steps):
            y = y - gamma * (q * y - state.dual)
        local = train_shifted(self.client, steps, state.models, -state.duals, -q, state.stats, cohort, ctx)

        sent = send_decoded("difference", self.uplink, local.value - y, cohort, ctx, self.relay)
        mean = sent.mean(0) / 2
        if not self.relay:
            mean = ctx.send_dense("mean", mean, cohort)
        models = torch.lerp(local.value, y + mean, constants.rho)
        duals = state.duals + constants.dual_step * (mean - sent)
        dual = state.dual + constants.dual_step * mean
        y = y + constants.rho * mean
        metrics = {
            "train/loss": local.loss,
            "local/steps": y.new_full((), float(steps)),
            "control/sum": torch.linalg.vector_norm(duals.mean(0) + dual),
            "models/spread": (models - y).square().sum(1).mean(),
            **exactness(self.client, y),
        }
        return LoCoDLState(y, state.stats, models, duals, dual), metrics

    def evaluation_models(self, state: LoCoDLState, key: Key) -> dict[str, Models]:
        """`test`: y; `mean`: the mean of the x_i, which nobody holds."""
        models = {"test": state.theta, "mean": state.models.mean(0)}
        return {name: Models(theta[None], state.stats[None]) for name, theta in models.items()}
