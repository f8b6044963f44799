"""M3: every client is sent its own part of the server's step, and answers with a compressed change of its gradient.

K. Gruntkowska, A. Tyurin, P. Richtárik, "Improving the worst-case bidirectional communication complexity for nonconvex
distributed optimization under function similarity", NeurIPS 2024 (MARINA-P down, compressed differences up, momentum),
as "BiCompFL" (arXiv:2502.00206) runs it: PermK down, Top-k with k = floor(D / n) up, pseudo-gradients of local epochs.
With x, G at the server and w_i, z_i, g_i at client i, a round is

    down    with probability p_P: w_i <- x, broadcast;  else w_i <- w_i + C_i(x - x_old), to client i alone
    local   z_i <- beta w_i + (1 - beta) z_i;  g_i = change of z_i by local training
    up      with probability p_D: G <- mean g_i;  else c_i = C(g_i - h_i), G <- G + mean c_i
    server  x <- x + step(G)

where h_i is the client's last g_i (marina) or the sum of what it sent (ef21). Both first messages are full. PermK's
parts are correlated: they cover the model, so that mean w_i = x whatever the coins show. Coins are common to all
clients and follow from the round's key, for nothing. With which p_P, p_D, beta and h_i BiCompFL's tables were made is
not stated: 1 / n, 1 / n, 1/2 and marina are our choice. Gradients are updates theta_i - theta here, as in FedAvg, and
the server steps at the end of the round, so that with p_P = p_D = beta = 1 it is FedAvg.

Marina with a biased codec such as Top-k adds up what it left out until the next full uplink; ef21 sends it later.

Shape legend: N clients, all of whom take part, D parameters, C running statistics.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.downlinks.downlink import Downlink
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.algorithm.updates.metrics import lengths
from fedcomp.client import LocalSolver
from fedcomp.compressor import Compressor
from fedcomp.compressor.contract import Codec
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.estimators.estimator import WeightedSum
from fedcomp.compressor.feedback import NoFeedback
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.core.cohort import Cohort
from fedcomp.core.ranges import Within
from fedcomp.server import ServerOptimizer, Slots
from fedcomp.wire.coding import bits_for

FULL = Dense()
"""What carries whole vectors, 32 bits an entry."""

Probability = Annotated[float | None, Within("[0, 1]", "a probability; null for 1 / num_clients")]


@dataclass(frozen=True)
class M3State(ModelState):
    """What lives from round to round.

    Attributes:
        step: [D] its last step, which the clients are still to be sent.
        update: [D] G, the server's estimate of the clients' mean update.
        models: [N, D] w_i, the clients' models. points: [N, D] z_i, their averages over rounds, where they train.
        base: [N, D] h_i, what a client's next compressed update is a difference to.
        optimizer: memories of the server optimizer.
    """

    step: Tensor
    update: Tensor
    models: Tensor
    points: Tensor
    base: Tensor
    optimizer: Slots


@dataclass(frozen=True)
class StepAndModels:
    """What `MarinaP` builds on: the server's last step [D], and the clients' models w_i [N, D]."""

    step: Tensor
    models: Tensor


@dataclass(frozen=True)
class MarinaP(Downlink[StepAndModels, Tensor]):
    """The whole model with some probability, else each client's own part of the last step.

    Attributes:
        compressor: C_i, a message for each client. probability: p_P; None: 1 / n.
    """

    sends_model = True

    compressor: Compressor
    probability: float | None

    def model(self, theta: Tensor, memory: StepAndModels, cohort: Cohort, ctx: Context) -> tuple[Tensor, StepAndModels]:
        """[N, D] w_i."""
        if _full(self.probability, "down", cohort, ctx):
            return ctx.send_dense("model", theta, cohort).expand(cohort.size, -1).clone(), memory
        common, nothing = ctx.common("step", cohort), self.compressor.init(cohort.size, memory.step)
        rows = memory.step.expand(cohort.size, -1)
        payload, _ = self.compressor.encode(rows, nothing, cohort, common, ctx.sender_key("step"))
        received = ctx.link.unicast(replace(payload, paper_bits=None))
        return memory.models + self.compressor.decode(received, common), memory


@dataclass(frozen=True)
class M3(Algorithm):
    """Parts of the step down, compressed differences up, now and then everything.

    Attributes:
        client: trains locally, from z_i. server: steps along G.
        uplink: carries g_i - h_i. downlink: carries the step, a message for each client; unbiased.
        p_down, p_up: p_P and p_D, probability that a round's message is the whole vector; null: 1 / n.
        beta: weight of w_i in z_i, in (0, 1]; 1 is no momentum.
        differences: marina, h_i is the last g_i; ef21, h_i is the sum of what was sent (codecs that only shrink).
        uplink_entries: per_client, k = floor(D / n) of Top-k or Rand-k (D without BatchNorm's parameters, which go
            dense), as in the paper; compressor, as that says.
    """

    client: LocalSolver
    server: ServerOptimizer
    uplink: Compressor
    downlink: Compressor
    p_down: Probability = None
    p_up: Probability = None
    beta: Annotated[float, Within("(0, 1]", "1 is no momentum")] = 0.5
    differences: Literal["marina", "ef21"] = "marina"
    uplink_entries: Literal["per_client", "compressor"] = "per_client"

    weights = "uniform"
    full_participation = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, part in (("compressor", self.uplink), ("downlink", self.downlink)):
            if part.feedback != NoFeedback() or part.estimator != WeightedSum():
                raise ValueError(
                    f"M3 has memories of its own: leave {name}.feedback=none and {name}.estimator=weighted_sum"
                )
        if self.p_up == 1 and self.uplink.codec != FULL:
            raise ValueError(
                f"algorithm.p_up=1 sends every update whole, so that {type(self.uplink.codec).__name__} is never used: "
                "leave compressor at dense (with algorithm.uplink_entries=compressor), or lower algorithm.p_up"
            )
        self._check_codecs(self.uplink.codec, self.downlink.codec)

    @property
    def config_name(self) -> str:
        """`marina_p` with the options that make it that, else `m3`."""
        return "marina_p" if self.p_up == self.beta == 1 else "m3"

    def _check_codecs(self, up: Codec, down: Codec) -> None:
        if not down.unbiased:
            raise ValueError(f"M3 needs an unbiased downlink, not {type(down).__name__}: take permk, randk or qsgd")
        if self.differences == "ef21" and not up.contractive:
            raise ValueError(
                f"algorithm.differences=ef21 needs a compressor that only shrinks, not {type(up).__name__} as "
                "configured: take topk, randk with compressor.scale=none, or algorithm.differences=marina"
            )
        if self.uplink_entries == "compressor":
            return
        if not isinstance(up, (TopK, RandK)):
            raise ValueError(
                f"algorithm.uplink_entries=per_client is for compressor=topk or randk, not {type(up).__name__}: "
                "take algorithm.uplink_entries=compressor"
            )
        match_bits = up.match_bits if isinstance(up, TopK) else None
        if (up.fraction, up.k, match_bits) != (type(up)().fraction, None, None):
            raise ValueError(
                "algorithm.uplink_entries=per_client sets the number of entries: leave compressor.fraction, k and "
                "match_bits at their defaults, or take algorithm.uplink_entries=compressor"
            )

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> M3State:
        """The first model with everybody; nothing is sent yet. Raises ValueError: not a size that a codec can send."""
        self._up(theta.shape[0], setup.num_clients).init(setup.num_clients, theta)
        self.downlink.init(setup.num_clients, theta)
        zero = torch.zeros_like(theta)
        rows = theta.expand(setup.num_clients, -1)
        models, points, base = rows.clone(), rows.clone(), torch.zeros_like(rows)
        return M3State(theta, stats, zero, zero.clone(), models, points, base, self.server.init(theta))

    def round(self, state: M3State, cohort: Cohort, ctx: Context) -> tuple[M3State, Metrics]:
        """One round; `update/norm` is ||g_i|| [N], `models/spread` the mean ||w_i - x||^2.

        With ef21 `memory/norm` [N] is ||g_i - h_i||, what is left to be sent.
        """
        down = MarinaP(self.downlink, self.p_down)
        memory = StepAndModels(state.step, state.models)
        models, stats, _ = down.send_model(state.theta, state.stats, memory, cohort, ctx)
        points = torch.lerp(state.points, models, self.beta)

        local, stats = train_locally(self.client, points, stats, cohort, ctx)
        dispersion = (models - state.theta).square().sum(1).mean()
        metrics = {**training_metrics(local), "models/spread": dispersion}
        update, base = self._send_up(local.value, state, cohort, ctx)
        if self.differences == "ef21":
            metrics["memory/norm"] = lengths(local.value - base)
        step, optimizer = self.server.step(update, state.optimizer, state.theta)
        return M3State(state.theta + step, stats, step, update, models, points, base, optimizer), metrics

    def _up(self, dim: int, num_clients: int) -> Compressor:
        """The uplink, with the number of entries that its codec is to send."""
        codec = self.uplink.codec
        if self.uplink_entries == "compressor":
            return self.uplink
        assert isinstance(codec, (TopK, RandK))
        return replace(self.uplink, codec=replace(codec, k=max(1, self.uplink.num_coded(dim) // num_clients)))

    def _send_up(self, updates: Tensor, state: M3State, cohort: Cohort, ctx: Context) -> tuple[Tensor, Tensor]:
        """([D] G, [N, D] h_i) from the clients' updates g_i [N, D]."""
        common, sender_key = ctx.common("update", cohort), ctx.sender_key("update")
        if _full(self.p_up, "up", cohort, ctx):
            received = ctx.link.up(FULL.encode(updates, common, sender_key))
            return cohort.weight @ FULL.decode(received, common), updates
        uplink = self._up(updates.shape[1], cohort.size)
        nothing = uplink.init(cohort.size, state.update)
        payload, _ = uplink.encode(updates - state.base, nothing, cohort, common, sender_key)
        paper_bits = _study_bits(uplink.codec, uplink.num_coded(updates.shape[1]))
        changes = uplink.decode(ctx.link.up(replace(payload, paper_bits=paper_bits)), common)
        base = updates if self.differences == "marina" else state.base + changes
        return state.update + cohort.weight @ changes, base


def _study_bits(codec: Codec, dim: int) -> int | None:
    """Bits of a message as BiCompFL's tables count it: of Top-k 32 a value and ceil(log2 D) a place.

    None: as it is sent, as with any other codec, and with Top-k whose places are plain numbers.
    """
    return codec.num_sent(dim) * (32 + bits_for(dim)) if isinstance(codec, TopK) else None


def _full(probability: float | None, link: str, cohort: Cohort, ctx: Context) -> bool:
    """Whether this round's message on a link is the whole vector: a coin that both ends toss from the round's key."""
    share = 1 / cohort.size if probability is None else probability
    draw = ctx.key.fold_in("full", link).uniform(torch.zeros(1, dtype=torch.int64), 1)  # on the host, which must know
    return ctx.round == 0 or float(draw) < share
