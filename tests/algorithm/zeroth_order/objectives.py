"""Rounds of zeroth-order methods on quadratics, and a link that notes what it carries."""

from typing import Any

import torch

from fedcomp.algorithm.contract import Context, Setup
from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, Payload, WireLink
from tests.algorithm.heterogeneous import D, Heterogeneous


class NotingLink(WireLink):
    """Notes (receivers, payload as received) of every broadcast, and what came up last."""

    received: Payload

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.broadcasts: list[tuple[tuple[int, ...], Payload]] = []

    def broadcast(self, payload: Payload, receivers: Any) -> Payload:
        received = super().broadcast(payload, receivers)
        self.broadcasts.append((tuple(getattr(receivers, "clients", ())), received))
        return received

    def up(self, payload: Payload) -> Payload:
        self.received = super().up(payload)
        return self.received


def context(clients: Any, index: int, link: Any = None, num_rounds: int = 100) -> Context:
    """A round's context."""
    key = Key(("zeroth order", 0)).fold_in("round", index)
    return Context(index, num_rounds, key, link or WireLink(Ledger()), clients)


def cohort_of(*clients: int) -> Cohort:
    """These clients, with equal weights."""
    return Cohort.of(list(clients), torch.full((len(clients),), 1 / len(clients)))


def first_state(algorithm: Any, clients: Heterogeneous) -> Any:
    """The algorithm's state at the origin."""
    return algorithm.init(torch.zeros(D), torch.zeros(0), Setup(clients.num_clients, clients.tensors, None))
