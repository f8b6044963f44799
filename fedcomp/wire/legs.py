"""The legs of a round: what links carry and what clients compute, in the order of the calls, client by client.

The ledger adds bits up; the clock of a network (`fedcomp/network/`) needs to know whose they are, and in which order
they are sent. Legs are kept only where somebody asks for them. An amount that depends on data stays a tensor on its
device until the rounds since the last evaluation are read together, so keeping legs does not synchronise with a GPU.

Shape legend: M clients of the cohort, L rows of a leg (M, or the number of clients listed).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from fedcomp.core.cohort import Cohort, Everyone, Receivers

UNICAST, BROADCAST, RELAY, XOR_RELAY, WORK, UP = range(6)
"""Kinds of legs. A relay goes from every client to all others; work is gradients."""
COHORT, ALL = "cohort", "all"

Who = str | tuple[int, ...]
"""Whose the rows are, or who receives: `COHORT`, `ALL`, or client numbers in the order of the rows."""
Amount = int | np.ndarray | Tensor
"""Bits of one message or, of work, component gradients: the same for each row, or int64 [L]; of a broadcast in all."""


class Leg(NamedTuple):
    """One call.

    Attributes:
        kind: one of the kinds above. who: whose rows. amount: of each row.
    """

    kind: int
    who: Who
    amount: Amount


@dataclass
class Legs:
    """The legs of one round.

    Attributes:
        clients: of the cohort, ascending. made: the legs so far.
        late: [M] who missed the deadline; None: nobody can.
    """

    clients: tuple[int, ...]
    made: list[Leg] = field(default_factory=list)
    late: np.ndarray | None = None

    def add(self, kind: int, amount: Amount, who: Receivers | None = None) -> None:
        """Append a leg; `who` is None for the cohort."""
        self.made.append(Leg(kind, self._named(who), amount))

    def add_work(self, cohort: Cohort, gradients: Amount) -> None:
        """Append the component gradients that the clients of `cohort` computed between two messages."""
        self.add(WORK, gradients, cohort)

    @property
    def on_device(self) -> list[Tensor]:
        """The amounts that have not been read."""
        return [leg.amount for leg in self.made if isinstance(leg.amount, Tensor)]

    def resolve(self, read: Iterator[np.ndarray]) -> None:
        """Replace the amounts `on_device` by their values [L], which were read from the device."""
        self.made = [leg._replace(amount=next(read)) if isinstance(leg.amount, Tensor) else leg for leg in self.made]

    def take(self, other: "Legs", first: int) -> None:
        """Append the legs of `other` from number `first` on, those of its own cohort by the numbers of its clients."""
        if other.clients == self.clients:
            self.made += other.made[first:]
        else:
            own = (leg._replace(who=other.clients) if leg.who == COHORT else leg for leg in other.made[first:])
            self.made += own

    def _named(self, who: Receivers | None) -> Who:
        if who is None:
            return COHORT
        if isinstance(who, Everyone):
            return ALL
        return COHORT if who.clients is self.clients or who.clients == self.clients else who.clients


class RoundDeadline(Protocol):
    """Leaves late clients out of a round."""

    def decide(self, cohort: Cohort, legs: Legs) -> Cohort:
        """Who of the cohort counts, with their weights: the cohort itself if nothing changes. Sets `legs.late`.

        Args:
            legs: what all of the cohort have sent.
        """


@dataclass
class RoundLog:
    """The legs of a run's rounds, or of one repetition's.

    Attributes:
        rounds: that nobody has taken yet. deadline: who of a round is late; None: nobody can be.
    """

    rounds: list[Legs] = field(default_factory=list)
    deadline: RoundDeadline | None = None
