"""TAMUNA: local steps, masks that share the entries out among the clients, and partial participation; exact.

L. Condat, I. Agarsky, G. Malinovsky, P. Richtarik, "TAMUNA: doubly accelerated distributed optimization with local
training, compression, and partial participation", arXiv:2302.09832. With c of n clients a round, every entry sent by s
of them, dual variables h_i (sum h_i = 0; idle clients keep theirs):

    down    xbar to the c clients
    local   L ~ Geometric(p), common to all, times:  x_i <- x_i - gamma (grad f_i(x_i) - h_i)
    up      the entries of x_i under the mask q_i, about s d / c of them
    server  xbar+ = (1/s) sum q_i x_i
    down    to client i the entries of xbar+ under q_i;  h_i <- h_i + (p chi / gamma) q_i (xbar+ - x_i)

Row j of the template has ones in the columns (s j + 0 ... s - 1) mod c; the columns are dealt out to the clients at
random. Both ends draw them from the round's key, for nothing. gamma is `client.lr`, below 2/L; the theorem has chi of
at most n (s - 1) / (s (n - 1)), the default, and a factor max((1 - gamma mu)^2, (1 - gamma L)^2,
1 - p^2 chi (s - 1) / (n - 1)) a local step. p=null is min(1, sqrt(n / (s kappa))).

The second message down is needed: a client that learns xbar+ of its own round only at its next visit, as in the
authors' Flower baseline, has sum h_i != 0, and the limit is wrong or it diverges. That program also bounds chi with c
for n, which is larger and faster (`algorithm.chi`).

Shape legend: c clients of the cohort, n clients in all, D parameters.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.algorithm.exact.local_steps import (
    Constant,
    check_client,
    check_constant_step,
    check_constants,
    check_no_stats,
    exactness,
    geometric,
    train_shifted,
)
from fedcomp.client import LocalSolver
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.ranges import Whole, Within
from fedcomp.core.rows import scatter_distinct_
from fedcomp.core.to_device import to_device
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float


@dataclass(frozen=True)
class TamunaState:
    """What lives from round to round.

    Attributes:
        theta: [D] xbar. stats: [0] the model has no running statistics. duals: [n, D] h_i.
    """

    theta: Tensor
    stats: Tensor
    duals: Tensor


@dataclass(frozen=True)
class Masks:
    """Which entries each client of a round sends.

    Attributes:
        indices: [c, w] int64 positions, ascending; D beyond the entries of a client. count: [c] int64 how many it has.
    """

    indices: Tensor
    count: Tensor

    @classmethod
    def draw(cls, num_clients: int, per_entry: int, dim: int, key: Key, device: torch.device) -> "Masks":
        """Those of c clients, every entry with `per_entry` of them."""
        indices, count = template(num_clients, per_entry, dim)
        order = key.bits(torch.zeros(1, dtype=torch.int64), num_clients)[0].argsort(stable=True).numpy()
        return cls(to_device(indices[order], device), to_device(count[order], device))

    def message(self, rows: Tensor) -> Payload:
        """The entries of rows [c, D] under the masks."""
        values = rows.gather(1, self.indices.clamp(max=rows.shape[1] - 1)).masked_fill_(self._beyond, 0.0)
        return Payload({"values": Field(values, Float(), self.count, count_known=True)})

    def read(self, payload: Payload, dim: int) -> Tensor:
        """[c, D] the entries of a message at their positions, 0 elsewhere."""
        (values,) = payload.expect(values=self.indices.shape[1])
        whole = values.new_zeros(values.shape[0], dim + 1)
        return scatter_distinct_(whole, self.indices, values)[:, :dim]

    def whole(self, dim: int) -> Tensor:
        """[c, D] of 0 and 1."""
        return self.read(Payload({"values": Field(torch.where(self._beyond, 0.0, 1.0), Float())}), dim)

    @property
    def _beyond(self) -> Tensor:
        return torch.arange(self.indices.shape[1], device=self.indices.device) >= self.count[:, None]


@lru_cache(maxsize=4)
def template(num_clients: int, per_entry: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """(positions [c, w], number of them [c]) of the columns of the mask's template, filled up with D."""
    rows = np.arange(dim)
    columns = [np.flatnonzero((column - per_entry * rows) % num_clients < per_entry) for column in range(num_clients)]
    count = np.array([len(column) for column in columns], dtype=np.int64)
    positions = np.full((num_clients, max(int(count.max()), 1)), dim, dtype=np.int64)
    for column, held in zip(positions, columns, strict=True):
        column[: len(held)] = held
    return positions, count


@dataclass(frozen=True)
class Tamuna(Algorithm):
    """Masked averaging after local steps.

    Attributes:
        client: gd, or sgd for stochastic gradients; its learning rate is gamma.
        sparsity: s; c is no compression. smoothness, convexity: L and mu of the f_i.
    """

    client: LocalSolver
    sparsity: Annotated[int, Whole(2, "by how many clients of a round an entry is sent")] = 2
    p: Annotated[float | None, Within("(0, 1]", "a probability")] = 0.2
    chi: Annotated[float | None, Within("(0, inf)", "the length of a dual step; null: the theory's")] = None
    smoothness: Constant = None
    convexity: Constant = None

    weights = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_client("TAMUNA", self.client)
        check_constant_step("TAMUNA", self.client)
        check_constants(self.smoothness, self.convexity, self.client.lr)
        if self.p is None and (self.smoothness is None or self.convexity is None):
            raise ValueError(
                "algorithm.p=null is computed from algorithm.smoothness and algorithm.convexity: give both, or p"
            )

    def check_cohort(self, size: int | None) -> None:
        """Raise ValueError unless every round has as many clients, and s of them."""
        if size is None:
            raise ValueError(
                "TAMUNA needs as many clients in every round: take participation=full or participation=uniform"
            )
        if self.sparsity > size:
            raise ValueError(
                f"algorithm.sparsity={self.sparsity} is above the {size} clients of a round, each of which sends an "
                "entry at most once: take less, or more clients (2 at least)"
            )

    def init(self, theta: Tensor, stats: Tensor, setup: Setup) -> TamunaState:
        """The first model; h_i = 0."""
        check_no_stats("TAMUNA", stats)
        return TamunaState(theta, stats, theta.new_zeros(setup.num_clients, theta.shape[0]))

    def round(self, state: TamunaState, cohort: Cohort, ctx: Context) -> tuple[TamunaState, Metrics]:
        """One round.

        Metrics: `train/loss` [c]; `local/steps`; `control/norm` ||h_i|| [c]; `control/sum` ||sum h_i|| where all take
        part; `exact`.
        """
        dim, num_clients = state.theta.shape[0], ctx.clients.num_clients
        per_entry, p = min(self.sparsity, cohort.size), self._probability(num_clients)
        steps, gamma = geometric(p, ctx.key.fold_in("steps")), self.client.lr
        start, own = ctx.send_dense("model", state.theta, cohort), take_rows(state.duals, cohort)
        rows = start.expand(cohort.size, -1)
        local = train_shifted(self.client, steps, rows, -own, 0.0, state.stats, cohort, ctx)

        masks = Masks.draw(cohort.size, per_entry, dim, ctx.key.fold_in("masks"), start.device)
        received = masks.read(ctx.link.up(masks.message(local.value)), dim)
        mean = received.sum(0) / per_entry
        answer = masks.read(ctx.link.unicast(masks.message(mean.expand(cohort.size, -1))), dim)
        own = own + (p * self._chi(per_entry, num_clients) / gamma) * (answer - masks.whole(dim) * local.value)
        duals = put_rows(state.duals, cohort, own)
        metrics = {
            "train/loss": local.loss,
            "local/steps": mean.new_full((), float(steps)),
            "control/norm": torch.linalg.vector_norm(own, dim=1),
            **exactness(self.client, mean),
        }
        if cohort.is_all_of(num_clients):
            metrics["control/sum"] = torch.linalg.vector_norm(duals.sum(0))
        return TamunaState(mean, state.stats, duals), metrics

    def _chi(self, per_entry: int, num_clients: int) -> float:
        if self.chi is not None:
            return self.chi
        return num_clients * (per_entry - 1) / (per_entry * (num_clients - 1)) if num_clients > 1 else 1.0

    def _probability(self, num_clients: int) -> float:
        if self.p is not None:
            return self.p
        assert self.smoothness is not None
        assert self.convexity is not None
        return min(1.0, math.sqrt(num_clients * self.convexity / (self.sparsity * self.smoothness)))
