"""Clients whose quadratics differ in curvature and in centre, so that plain local training and compression stop short.

f_i(x) = (x - b_i)^T H_i (x - b_i) / 2 for n = 7 clients and d = 40 entries, H_i = Q_i diag(e_i) Q_i^T with Q_i near one
orthogonal matrix, e_i from 0.02 to 1 (condition 50), b_i standard normal; start 0. A seed chooses the problem.
Rounds to 1e-8 of the squared distance from the start, which tests compare with, are those of a program in float64.

Shape legend: N clients, M of a chunk, P models of each, D entries.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Metrics, Setup
from fedcomp.client import Batch, Batching
from fedcomp.client.sgd import Sgd
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import WEIGHT, ParameterTensor
from fedcomp.model.contract import Gradient
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Link

N, D = 7, 40
STEP = Sgd(lr=1.0, steps=1)
"""One gradient step of length 1: the local change is minus the gradient."""


@dataclass(frozen=True)
class Chunk:
    """Implements what solvers and `full_gradient` need of `LocalData`; client i makes `steps[i]` of them, if given."""

    ids: Tensor
    hessians: Tensor
    centres: Tensor
    steps: tuple[int, ...] | None = None
    loop_runner: None = None

    @property
    def num_samples(self) -> Tensor:
        return torch.ones_like(self.ids)

    def num_steps(self, batching: Batching) -> Tensor:
        if self.steps is None:
            return torch.full_like(self.ids, batching.steps or batching.epochs)
        return torch.tensor([self.steps[client] for client in self.ids.tolist()])

    def batches(self, batching: Batching) -> Iterator[tuple[Tensor, Tensor, None]]:
        steps = self.num_steps(batching)
        assert (steps[1:] <= steps[:-1]).all(), "clients of a chunk are sorted by falling number of steps"
        for step in range(int(steps.max())):
            active = int((steps > step).sum())
            yield self.ids[:active, None], self.ids[:active, None], None

    def samples(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor, None]]:
        yield self.ids[:, None], self.ids[:, None], None

    def gradient(self, theta: Tensor, batch: Batch, step: int) -> Gradient:
        rows = batch.x[:, 0]
        away = (theta - self.centres[rows]).to(torch.float64)
        grad = (self.hessians[rows] @ away[:, :, None])[:, :, 0]
        return Gradient(grad.to(theta.dtype), (grad * away).sum(1).to(theta.dtype) / 2, batch.stats)

    def losses(self, theta: Tensor, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """[M, P] float64 of several models of each client, theta [M, P, D]; and their statistics."""
        rows = batch.x[:, 0]
        away = theta.double() - self.centres[rows, None]
        return ((away @ self.hessians[rows]) * away).sum(2) / 2, batch.stats[:, None].expand(-1, theta.shape[1], -1)


@dataclass(frozen=True)
class Heterogeneous:
    """Implements `Clients`.

    Attributes:
        hessians: [N, D, D] float64. centres: [N, D] float64. steps: of each client in a round, falling; None: as the
            solver says.
    """

    hessians: Tensor
    centres: Tensor
    steps: tuple[int, ...] | None = None
    layers: tuple[int, ...] = (D - 10, 10)

    @property
    def num_clients(self) -> int:
        return len(self.centres)

    @property
    def tensors(self) -> tuple[ParameterTensor, ...]:
        return tuple(ParameterTensor(size, WEIGHT) for size in self.layers)

    def map_clients(self, work: Callable[..., Any], cohort: Cohort, *rows: Tensor) -> Any:
        return work(Chunk(cohort.ids, self.hessians, self.centres, self.steps), *rows)

    def parallel_map(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterator[Any]:
        return map(function, pieces)

    @functools.cached_property
    def optimum(self) -> Tensor:
        """[D] float64 x*, where sum_i H_i (x - b_i) = 0."""
        return torch.linalg.solve(self.hessians.mean(0), -self.gradients(torch.zeros(D)).mean(0))

    def changes(self, theta: Tensor) -> Tensor:
        """[N, D] what `STEP` makes of models theta [N, D] or [D]: -H_i (x - b_i)."""
        return -self.gradients(theta).float()

    def gradients(self, theta: Tensor) -> Tensor:
        """[N, D] float64 H_i (x - b_i) at one theta [D], or at one a client [N, D]."""
        return (self.hessians @ (theta.double() - self.centres)[:, :, None])[:, :, 0]

    def distance(self, theta: Tensor) -> float:
        """||theta - x*||^2 / ||x*||^2, 1 at the start."""
        return float((theta.double() - self.optimum).square().sum() / self.optimum.square().sum())


@functools.cache
def problem(seed: int = 0, num: int = N) -> Heterogeneous:
    """The first `num` clients of that seed."""
    generator = np.random.default_rng(seed)
    common = np.linalg.qr(generator.standard_normal((D, D)))[0]
    hessians, centres = [], []
    for _ in range(num):
        own = np.linalg.qr(common + 0.03 * generator.standard_normal((D, D)))[0]
        own = own * np.sign((own * common).sum(0))
        values = np.geomspace(0.02, 1, D) * np.exp(generator.uniform(-0.5, 0.5, D))
        values = np.clip(values, 0.02, 1)
        values[0], values[-1] = 0.02, 1
        hessians.append(own * values @ own.T)
        centres.append(generator.standard_normal(D))
    return Heterogeneous(torch.from_numpy(np.stack(hessians)), torch.from_numpy(np.stack(centres)))


@dataclass
class Run:
    """Rounds of an algorithm on a problem.

    Attributes:
        participants: clients of a round, drawn anew in each; None: all. metrics: of the last round.
    """

    algorithm: Algorithm
    clients: Heterogeneous
    participants: int | None = None
    seed: int = 100
    metrics: Metrics = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)

    def init(self, theta: Tensor | None = None) -> Any:
        """First state, at 0 unless told otherwise."""
        start = torch.zeros(self.clients.centres.shape[1]) if theta is None else theta.to(torch.float32)
        return self.algorithm.init(start, torch.zeros(0), Setup(self.clients.num_clients, self.clients.tensors, Key()))

    def cohort(self, index: int) -> Cohort:
        """Who takes part in round `index`."""
        if self.participants is None:
            return Cohort.of(list(range(N)), torch.full((N,), 1 / N))
        drawn = np.random.default_rng((self.seed, index)).choice(N, self.participants, replace=False)
        return Cohort.of(sorted(drawn.tolist()), torch.full((self.participants,), 1 / self.participants))

    def once(self, state: Any, index: int) -> Any:
        """The state after round `index`; `ledger` then has the bits of this round."""
        self.ledger = Ledger()
        key = Key(("heterogeneous", self.seed)).fold_in("round", index)
        context = Context(index, 10**6, key, Link(self.ledger), self.clients)
        state, self.metrics = self.algorithm.round(state, self.cohort(index), context)
        return state

    def states(self, num_rounds: int, state: Any = None) -> Iterator[Any]:
        """The state after each round."""
        state = self.init() if state is None else state
        for index in range(num_rounds):
            state = self.once(state, index)
            yield state

    def last(self, num_rounds: int) -> Any:
        """The state after the last round."""
        *_, state = self.states(num_rounds)
        return state

    def rounds(self, num_rounds: int) -> Iterator[tuple[Any, Any, dict[str, int]]]:
        """(state before, state after, bits of every link) of each round."""
        for before, after in itertools.pairwise(itertools.chain([self.init()], self.states(num_rounds))):
            yield before, after, self.bits()

    def rounds_to(self, target: float, most: int) -> int | None:
        """Rounds until the evaluated model is that near to the optimum; None if `most` are not enough."""
        for index, state in enumerate(self.states(most)):
            if self.distance(state) < target:
                return index + 1
        return None

    def floor(self, num_rounds: int) -> float:
        """The least distance in the last tenth of so many rounds."""
        found = [self.distance(state) for state in self.states(num_rounds)]
        return min(found[-(num_rounds // 10) :])

    def distance(self, state: Any) -> float:
        """Of the main evaluated model."""
        return self.clients.distance(self.algorithm.evaluation_models(state, Key())["test"].theta[0])

    def bits(self) -> dict[str, int]:
        """Of the last round."""
        counters = self.ledger.counters()
        return {name: counters[name] for name in ("uplink", "downlink", "broadcast")}
