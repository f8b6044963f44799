"""Clients whose losses are quadratics, so that what they mean to send is known exactly.

Client i of N holds f_i(x) = (x - b_i)^T A (x - b_i) / 2 with one diagonal A for all, so that the minimum of the mean is
the mean of the b_i. Shape legend: N clients, D parameters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Context, Setup
from fedcomp.client.sgd import Sgd
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Link
from tests.algorithm.heterogeneous import Chunk

N, D = 4, 101
STEP = Sgd(lr=1.0, steps=1)
"""One gradient step of length 1: the local change is minus the gradient."""


@dataclass(frozen=True)
class Quadratics:
    """Implements `Clients`; curvature is A's diagonal [D], centres are the b_i [N, D]."""

    curvature: Tensor
    centres: Tensor

    @classmethod
    def of(cls, condition: float = 10.0, spread: float = 1.0, dim: int = D) -> "Quadratics":
        """Curvatures from 1/condition to 1 in equal ratios; centres of distance `spread` from their mean."""
        generator = torch.Generator().manual_seed(3)
        centres = torch.randn(1, dim, generator=generator) + spread * torch.randn(N, dim, generator=generator)
        return cls(torch.logspace(0, 1, dim) ** -torch.log10(torch.tensor(condition)), centres)

    @property
    def num_clients(self) -> int:
        return len(self.centres)

    @property
    def layers(self) -> tuple[int, ...]:
        return (len(self.curvature) - 1, 1)

    @property
    def tensors(self) -> tuple[ParameterTensor, ...]:
        return tuple(map(ParameterTensor, self.layers))

    def map_clients(self, work: Callable[..., Any], cohort: Cohort, *rows: Tensor) -> Any:
        hessians = self.curvature.double().diag().expand(self.num_clients, -1, -1)
        return work(Chunk(cohort.ids, hessians, self.centres.double()), *rows)

    def change(self, theta: Tensor) -> Tensor:
        """[N, D] what `STEP` makes of models theta [N, D] or [D]: -A (theta - b_i)."""
        return self.curvature * (self.centres - theta)

    def excess(self, theta: Tensor) -> float:
        """How much the mean loss at theta [D] is above its minimum."""
        return float((self.curvature * (theta - self.centres.mean(0)).square()).sum() / 2)


def init(algorithm: Algorithm, clients: Quadratics) -> Any:
    """First state at x = 0."""
    return algorithm.init(torch.zeros(len(clients.curvature)), torch.zeros(0), Setup(clients.num_clients, (), Key()))


def once(algorithm: Algorithm, clients: Quadratics, state: Any, index: int, ledger: Ledger | None = None) -> Any:
    """The state after round `index` (0 is the first), all clients taking part."""
    cohort = Cohort.of(list(range(clients.num_clients)), torch.full((clients.num_clients,), 1 / clients.num_clients))
    key = Key(("quadratic", 0)).fold_in("round", index)
    after, _ = algorithm.round(state, cohort, Context(index, 10**6, key, Link(ledger or Ledger()), clients))
    return after


def rounds(algorithm: Algorithm, clients: Quadratics, num_rounds: int) -> Iterator[tuple[Any, Any, dict[str, int]]]:
    """(state before, state after, bits of every link) of each round, from the first on."""
    state = init(algorithm, clients)
    for index in range(num_rounds):
        ledger = Ledger()
        after = once(algorithm, clients, state, index, ledger)
        counters = ledger.counters()
        yield state, after, {name: counters[name] for name in ("uplink", "downlink", "broadcast")}
        state = after


def last(algorithm: Algorithm, clients: Quadratics, num_rounds: int) -> Any:
    """The state after the last round."""
    *_, (_, state, _) = rounds(algorithm, clients, num_rounds)
    return state
