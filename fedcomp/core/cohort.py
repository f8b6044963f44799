"""The clients of one round, and whom a message goes to. Shape legend: M clients in the cohort, N clients in all."""

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcomp.core.to_device import from_host


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round, and how much each counts.

    Attributes:
        ids: [M] int64 client numbers in [0, N), ascending, on the run's device.
        weight: [M] float32; the aggregate of rows x is `weight @ x`, any 1/(N p_i) already inside.
        clients: the same numbers as `ids`, on the host: reading them does not synchronise with the device.
        state_donated: whether the caller gives up the old state, whose rows `put_rows` then overwrites.
    """

    ids: Tensor
    weight: Tensor
    clients: tuple[int, ...]
    state_donated: bool = False

    @classmethod
    def of(cls, clients: Sequence[int], weight: Tensor) -> "Cohort":
        """A cohort on the CPU from a list of client numbers and their weights."""
        return cls(torch.tensor(list(clients), dtype=torch.int64), weight.to(torch.float32), tuple(clients))

    @property
    def size(self) -> int:
        """M."""
        return len(self.clients)

    def check(self, num_clients: int) -> None:
        """Raise ValueError unless it is a cohort of so many clients, on the CPU, as a participation must draw it."""
        self.check_clients(num_clients)
        clients, weight = self.clients, self.weight
        if self.ids.dtype != torch.int64 or self.ids.tolist() != list(clients):
            raise ValueError(
                f"the participation drew ids {listed(self.ids.tolist())} of {self.ids.dtype}, but clients "
                f"{listed(clients)}: both are the same numbers, ids as int64; Cohort.of makes them"
            )
        legal = weight.isfinite() & (weight >= 0)
        if weight.dtype != torch.float32 or tuple(weight.shape) != (self.size,) or not bool(legal.all()):
            raise ValueError(
                f"the participation gives {self.size} clients the weights {listed(weight.tolist())} ({weight.dtype}), "
                "but each needs one finite float32, 0 or more"
            )

    def check_clients(self, num_clients: int) -> None:
        """The part of `check` that reads no tensor, for which a round of a GPU would wait."""
        clients = self.clients
        ascending = not any(map(operator.ge, clients, clients[1:]))
        if not ascending or (clients and not 0 <= clients[0] <= clients[-1] < num_clients):
            raise ValueError(
                f"the participation drew clients {listed(clients)}, but a cohort is ascending, without repetition, "
                f"and of 0 to {num_clients - 1}"
            )

    def is_all_of(self, num_clients: int) -> bool:
        """Whether the cohort has all N clients; its rows [M, ...] are then the rows [N, ...] of all."""
        return self.size == num_clients

    def without(self, clients: Collection[int]) -> "Cohort":
        """Those who are not among these clients; their weights are scaled to the same sum."""
        kept = [row for row, client in enumerate(self.clients) if client not in clients]
        if len(kept) == self.size:
            return self
        rows = torch.tensor(kept, dtype=torch.int64, device=self.ids.device)
        weight = self.weight.index_select(0, rows)
        weight = weight * (self.weight.sum() / weight.sum())
        numbers = tuple(self.clients[row] for row in kept)
        return replace(self, ids=self.ids.index_select(0, rows), weight=weight, clients=numbers)

    def to(self, device: torch.device) -> "Cohort":
        """The same cohort with its tensors on `device`."""
        if self.ids.device == device:
            return self
        # A blocking copy would wait in every round for all queued GPU work.
        ids, weight = (from_host(tensor, device) for tensor in (self.ids, self.weight))
        return replace(self, ids=ids, weight=weight)


def listed(values: Sequence[float]) -> str:
    """The first of them, for a line of an error."""
    return f"[{', '.join(map(str, values[:10]))}{', ...' if len(values) > 10 else ''}]"


@dataclass(frozen=True)
class Everyone:
    """All clients, idle ones too, as receivers of a broadcast. `size`: N."""

    size: int

    @property
    def clients(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(range(self.size))


@dataclass(frozen=True)
class Listed:
    """Some clients by number in [0, N), as receivers of a broadcast or senders of rows, in the order of the rows."""

    clients: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many."""
        return len(self.clients)


Receivers = Cohort | Everyone | Listed
"""Whom a message goes to: the cohort, all N clients, or listed ones."""


def server(device: torch.device | str = "cpu") -> Cohort:
    """The server as a sender: one row, number 0, weight 1."""
    return Cohort(torch.zeros(1, dtype=torch.int64, device=device), torch.ones(1, device=device), (0,))
