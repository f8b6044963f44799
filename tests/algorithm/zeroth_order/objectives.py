"""Clients whose losses are known functions of the parameters, and a link that notes what it carries.

Shape legend: N clients, A of a chunk, P models of each, D parameters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context, Setup
from fedcomp.core.cohort import Cohort
from fedcomp.model.contract import Gradient
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Payload, WireLink


@dataclass(frozen=True)
class Chunk:
    """Implements `LocalData` for losses (x - b_i)^T H (x - b_i) / 2, in float64."""

    ids: Tensor
    hessian: Tensor
    centres: Tensor
    loop_runner: None = None

    def batches(self, batching: Any) -> Iterator[tuple[Tensor, Tensor, None]]:
        for _ in range(batching.steps or 1):
            yield self.centres, self.centres, None

    def num_steps(self, batching: Any) -> Tensor:
        return torch.full_like(self.ids, batching.steps or 1)

    def losses(self, theta: Tensor, batch: Any, step: int) -> tuple[Tensor, Tensor]:
        error = theta.double() - batch.x[:, None]
        return ((error @ self.hessian) * error).sum(2) / 2, batch.stats[:, None].expand(-1, theta.shape[1], -1)

    def gradient(self, theta: Tensor, batch: Any, step: int) -> Gradient:
        grad = ((theta.double() - batch.x) @ self.hessian).to(theta.dtype)
        return Gradient(grad, self.losses(theta[:, None], batch, step)[0][:, 0].to(theta.dtype), batch.stats)


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
        return Chunk(ids, self.hessian, self.centres[ids])

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
