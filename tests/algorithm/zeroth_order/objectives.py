"""Clients whose losses are known functions of the parameters, and a link that notes what it carries.

Shape legend: N clients, A of a chunk, P models of each, D parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Setup
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Payload, WireLink
from tests.algorithm import heterogeneous


class Chunk(heterogeneous.Chunk):
    """Clients that tell the losses of several models."""

    def losses(self, theta: Tensor, batch: Any, step: int) -> tuple[Tensor, Tensor]:
        rows = batch.x[:, 0]
        error = theta.double() - self.centres[rows, None]
        return ((error @ self.hessians[rows]) * error).sum(2) / 2, batch.stats[:, None].expand(-1, theta.shape[1], -1)


@dataclass(frozen=True)
class Quadratics:
    """Implements `Clients`: H [D, D] of all, b_i [N, D], float64."""

    hessian: Tensor
    centres: Tensor

    @classmethod
    def of(cls, num_clients: int, dim: int) -> "Quadratics":
        generator = torch.Generator().manual_seed(5)
        root = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
        centres = torch.randn(num_clients, dim, generator=generator, dtype=torch.float64)
        return cls(root @ root.t() / dim, centres)

    @property
    def num_clients(self) -> int:
        return len(self.centres)

    @property
    def layers(self) -> tuple[int, ...]:
        return (len(self.hessian),)

    def chunk(self, ids: Tensor) -> Chunk:
        return Chunk(ids, self.hessian.expand(self.num_clients, -1, -1), self.centres)

    def parallel_map(self, function: Callable[[Any], Any], pieces: Any) -> Any:
        return map(function, pieces)

    def map_clients(self, work: Callable[..., Any], cohort: Cohort, *rows: Tensor) -> Any:
        return work(self.chunk(cohort.ids), *rows)

    def gradient(self, theta: Tensor) -> Tensor:
        """[N, D] of each client at theta [D]."""
        return (theta.double() - self.centres) @ self.hessian


class NotingLink(WireLink):
    """Notes (receivers, payload as received) of every broadcast."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.broadcasts: list[tuple[tuple[int, ...], Payload]] = []

    def broadcast(self, payload: Payload, receivers: Any) -> Payload:
        received = super().broadcast(payload, receivers)
        self.broadcasts.append((tuple(getattr(receivers, "clients", ())), received))
        return received


def context(clients: Any, index: int, link: Any = None, num_rounds: int = 100) -> Context:
    """A round's context."""
    key = Key(("zeroth order", 0)).fold_in("round", index)
    return Context(index, num_rounds, key, link or WireLink(Ledger()), clients)


def cohort_of(*clients: int) -> Cohort:
    """These clients, with equal weights."""
    return Cohort.of(list(clients), torch.full((len(clients),), 1 / len(clients)))


def first_state(algorithm: Any, clients: Quadratics) -> Any:
    """The algorithm's state at the origin."""
    return algorithm.init(torch.zeros(len(clients.hessian)), torch.zeros(0), Setup(clients.num_clients, (), None))
