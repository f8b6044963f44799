"""PowerSGD: the mean update of each weight matrix in a few columns and rows, by one power iteration over all clients.

T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
optimization", NeurIPS 2019 (arXiv:1905.13727), algorithms 1 and 2. A weight tensor is a matrix M of m outputs by n
inputs (the fan-in); Q [n, r] is known to all and starts from the last round's. Client k adds what its messages left
out, M_k = U_k + decay e_k, and a round has two exchanges:

    up P_k = M_k Q,   down P = orthonormal(sum_k p_k P_k);   up Q_k = M_k^T P,   down Q = sum_k p_k Q_k

Everybody takes the server's step with P Q^T = P P^T (sum_k p_k M_k): exactly what one machine with the mean would
compute. Tensors of one axis, and matrices of which rank r saves less than the factor `min_ratio`, go dense. P and Q go
to all N clients, so that idle ones keep model and Q (`sends=model`: the model, the last Q and P go to those who take
part, and nothing to the others); the first model and the first Q follow from the run's seed.

Departures and choices: every matrix is orthonormalised by itself, by QR, so that a zero update does not leave Q at zero
for ever (the authors' package divides matrices of one shape by a common norm at rank 1). The memory is
e_k = M_k - P Q_k^T, the client's own part (`memory=own`, as in the package), or M_k - P Q^T (`mean`, as in the paper's
code): the same path with all clients in every round, but with sampled clients `mean` stores the client's drift and
sends it again later. U_k is the change of any local training; the paper's is a gradient (client.steps=1).
`mode=independent` is ours: each client sends own orthonormal P_k and Q_k = M_k^T P_k in one exchange, and the mean, of
rank up to M r, goes down dense.

Shape legend: M clients of the cohort, N clients in all, D parameters, d of them in compressed matrices, r rank; of a
matrix m outputs, n inputs. In the equations M and M_k are matrices, not the cohort's size.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.low_rank.matrices import LowRank
from fedcomp.algorithm.models import ModelState
from fedcomp.algorithm.updates import begun
from fedcomp.algorithm.updates.local_training import train_locally, training_metrics
from fedcomp.algorithm.updates.metrics import lengths
from fedcomp.client import LocalSolver
from fedcomp.core.cohort import Cohort, Receivers
from fedcomp.core.parameter_layout import WEIGHT, ParameterTensor
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.ranges import Whole, Within
from fedcomp.random.keys import Key
from fedcomp.server import ServerOptimizer, Slots
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float

log = logging.getLogger("fedcomp")

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class PowerSGDState(ModelState):
    """What lives from round to round.

    Attributes:
        q: [sum n r] Q of the last round, which all clients have.
        errors: [N, d] e of each client, [N, 0] without a memory.
        optimizer: memories of the server optimizer.
        started: [1] int64, 1 once a round had clients; on the host, where it is asked.
    """

    q: Tensor
    errors: Tensor
    optimizer: Slots
    started: Tensor


@dataclass(frozen=True)
class PowerSGD(Algorithm):
    """Low-rank updates with error memory.

    Attributes:
        rank: r. warm_start: whether Q starts from the last round's; null: for aggregated.
        sends: factors (P, Q and the dense entries, to all N) or model (it and the last Q, to those who take part).
    """

    client: LocalSolver
    server: ServerOptimizer
    rank: Annotated[int, Whole()] = 2
    min_ratio: Annotated[float, Within("[0, inf)")] = 2.0
    mode: Literal["aggregated", "independent"] = "aggregated"
    iterations: Annotated[int, Whole()] = 1
    warm_start: bool | None = None
    refresh_every: Annotated[int, Whole(0, "a number of rounds; 0 for never")] = 0
    memory: Literal["own", "mean", "none"] = "own"
    decay: Annotated[float, Within("(0, 1]", "1 keeps the whole error")] = 1.0
    sends: Literal["factors", "model"] = "factors"
    weights: str = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sends == "model" and self.memory == "mean":
            raise ValueError(
                "algorithm.memory=mean is what is left of the mean, which algorithm.sends=model tells nobody: take "
                "memory=own, or sends=factors"
            )

    @property
    def several_uplinks(self) -> bool:
        """Whether Q is sent after the server's mean of P."""
        return self.mode == "aggregated"

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> PowerSGDState:
        """The first Q, drawn from the run's seed. Raises ValueError: the model has no such matrices."""
        low = self._low_rank(setup.tensors)
        sides = [min(t.size // t.fan_in, t.fan_in) for t in setup.tensors if t.kind == WEIGHT]
        if not sides:
            raise ValueError("algorithm=powersgd compresses weight matrices, and this model has none: choose another")
        if self.rank > max(sides):
            raise ValueError(
                f"algorithm.rank={self.rank} is above the smaller side of every weight matrix of this model, at most "
                f"{max(sides)}: lower it"
            )
        if not low.matrices:
            raise ValueError(
                f"algorithm.rank={self.rank} saves less than algorithm.min_ratio={self.min_ratio} of every matrix of "
                "this model: lower one of them"
            )
        errors = theta.new_zeros(setup.num_clients, 0 if self.memory == "none" else low.part.size)
        first = _normal(setup.key, low, theta)
        return PowerSGDState(theta, stats, first, errors, self.server.init(theta), begun.flag())

    def round(self, state: PowerSGDState, cohort: Cohort, ctx: Context) -> tuple[PowerSGDState, Metrics]:
        """One round.

        Metrics: the training's; `powersgd/captured` ||P Q^T||^2 / ||mean M||^2, `powersgd/compressed`, the share of D;
        `powersgd/memory` ||e_k|| / ||U_k||, 0 for a client that did not move; `exchanges`, how often clients send in
        the round.
        """
        low, begins = self._low_rank(ctx.clients.tensors), not begun.yes(state.started)
        if begins and self.memory != "none" and cohort.size < ctx.clients.num_clients:
            log.warning(
                "PowerSGD's memory with %d of %d clients in a round can grow stale where clients differ: try "
                "algorithm.decay=0.9 or algorithm.memory=none",
                cohort.size,
                ctx.clients.num_clients,
            )
        fresh = self.mode == "independent" or self.warm_start is False
        fresh = fresh or (self.refresh_every > 0 and ctx.round > 0 and ctx.round % self.refresh_every == 0)
        q = _normal(ctx.key.fold_in("fresh"), low, state.theta) if fresh else state.q
        theta, stats = state.theta, state.stats
        if self.sends == "model":
            known = {} if fresh or begins else {"q": q}
            received = _down({"model": theta, **known}, cohort, ctx)
            theta, q = received["model"], received.get("q", q)
            stats = ctx.send_stats(stats, cohort)

        local, stats = train_locally(self.client, theta, stats, cohort, ctx)
        meant = low.part.take(local.value)
        if self.memory != "none":
            meant = meant + self.decay * take_rows(state.errors, cohort)
        dense = low.part.rest.take(local.value).contiguous()

        exchange = self._aggregated if self.mode == "aggregated" else self._independent
        own, mean, dense_mean, q = exchange(low, meant, dense, q, cohort, ctx)
        if self.sends == "factors":
            stats = ctx.send_stats(stats, ctx.everyone)

        update = torch.empty_like(state.theta)
        low.part.put_(update, mean)
        low.part.rest.put_(update, dense_mean)
        step, optimizer = self.server.step(update, state.optimizer, state.theta)
        metrics = dict(training_metrics(local))
        errors = state.errors
        if self.memory != "none":
            left = meant - (own if self.memory == "own" else mean)
            errors = put_rows(errors, cohort, left)
            metrics["memory/norm"] = lengths(left)
            moved = lengths(low.part.take(local.value))
            metrics["powersgd/memory"] = torch.where(moved > 0, lengths(left) / moved.clamp(min=TINY), 0.0)
        whole = (cohort.weight @ meant).square().sum().clamp(min=TINY)
        metrics["powersgd/captured"] = mean.square().sum() / whole
        metrics["powersgd/compressed"] = mean.new_full((), low.part.size / low.part.dim)
        metrics["exchanges"] = mean.new_full((), 2.0 if self.mode == "aggregated" else 1.0)
        started = torch.ones_like(state.started)
        return PowerSGDState(state.theta + step, stats, q, errors, optimizer, started), metrics

    def _low_rank(self, tensors: Sequence[ParameterTensor]) -> LowRank:
        return LowRank.of(tensors, self.rank, self.min_ratio)

    def _aggregated(
        self, low: LowRank, meant: Tensor, dense: Tensor, q: Tensor, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(own parts P Q_k^T [M, d], P Q^T [d], mean of the dense entries, Q), after two exchanges."""
        matrices, weight = low.split(meant), cohort.weight
        receivers: Receivers = cohort if self.sends == "model" else ctx.everyone
        left = [matrix @ start for matrix, start in zip(matrices, low.split_right(q[None]), strict=True)]
        message = {"p": _flat(left), "dense": dense} if dense.shape[1] else {"p": _flat(left)}
        received = _up(message, ctx)
        sums = low.split_left((weight @ received["p"])[None])
        p = _down({"p": _flat([torch.linalg.qr(one).Q for one in sums])[0]}, receivers, ctx)["p"]
        left = low.split_left(p[None])

        right = [matrix.mT @ one for matrix, one in zip(matrices, left, strict=True)]
        down = {"q": weight @ _up({"q": _flat(right)}, ctx)["q"]}
        if dense.shape[1]:
            down["dense"] = weight @ received["dense"]
        everywhere = down if self.sends == "model" else _down(down, receivers, ctx)
        q = everywhere["q"]
        own = _flat([one @ other.mT for one, other in zip(left, right, strict=True)])
        mean = _flat([one @ other.mT for one, other in zip(left, low.split_right(q[None]), strict=True)])[0]
        return own, mean, everywhere.get("dense", dense.new_zeros(0)), q

    def _independent(
        self, low: LowRank, meant: Tensor, dense: Tensor, q: Tensor, cohort: Cohort, ctx: Context
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same of every client's own P_k and Q_k, after one exchange; the mean goes down dense."""
        left, right = [], []
        for matrix, start in zip(low.split(meant), low.split_right(q[None]), strict=True):
            other = start.expand(len(matrix), -1, -1)
            for _ in range(self.iterations):
                one = torch.linalg.qr(matrix @ other).Q
                other = matrix.mT @ one
            left.append(one)
            right.append(other)
        message = {"p": _flat(left), "q": _flat(right)} | ({"dense": dense} if dense.shape[1] else {})
        received = _up(message, ctx)
        pairs = zip(low.split_left(received["p"]), low.split_right(received["q"]), strict=True)
        own = _flat([one @ other.mT for one, other in pairs])
        dense_mean = cohort.weight @ received["dense"] if dense.shape[1] else dense.new_zeros(0)
        mean = torch.cat((cohort.weight @ own, dense_mean))
        if self.sends == "factors":
            mean = ctx.send_dense("mean", mean, ctx.everyone)
        return own, mean[: low.part.size], mean[low.part.size :], q


def _normal(key: Key, low: LowRank, like: Tensor) -> Tensor:
    """[sum n r] a random Q, which all draw alike."""
    num = sum(one.inputs * one.rank for one in low.matrices)
    return key.fold_in("q").normal(torch.zeros(1, dtype=torch.int64, device=like.device), num)[0]


def _flat(parts: Sequence[Tensor]) -> Tensor:
    """[M, sum] the parts [M, ...] in a row."""
    return torch.cat([part.flatten(1) for part in parts], 1)


def _up(tensors: dict[str, Tensor], ctx: Context) -> dict[str, Tensor]:
    """Rows [M, ...] from the cohort to the server, dense."""
    received = ctx.link.up(Payload({name: Field(rows.contiguous(), Float()) for name, rows in tensors.items()}))
    data = received.expect(**{name: rows.shape[1] for name, rows in tensors.items()})
    return dict(zip(tensors, data, strict=True))


def _down(vectors: dict[str, Tensor], receivers: Receivers, ctx: Context) -> dict[str, Tensor]:
    """Vectors from the server to clients, dense."""
    payload = Payload({name: Field(vector[None].contiguous(), Float()) for name, vector in vectors.items()})
    received = ctx.link.broadcast(payload, receivers)
    data = received.expect(**{name: vector.shape[0] for name, vector in vectors.items()})
    return {name: one[0] for name, one in zip(vectors, data, strict=True)}
