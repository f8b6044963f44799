"""Clients that were drawn for a round and are absent from it: those that a run between processes lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class WithoutAbsent:
    """Another rule's cohorts without those who are absent; the weights of the others are scaled to the same sum.

    Attributes:
        drawn: the rule. absent: {round: clients}; the first round is 0.
    """

    drawn: Participation
    absent: Mapping[int, Collection[int]]

    def check(self, num_clients: int) -> None:
        """As the rule's."""
        self.drawn.check(num_clients)

    def inclusion(self, num_clients: int, round_index: int = 0) -> Tensor:
        """[N] as the rule's: who will be absent is not known before."""
        return self.drawn.inclusion(num_clients, round_index)

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        """As `Participation.sample`."""
        return self.drawn.sample(key, importance, round_index).without(self.absent.get(round_index, ()))

    def metrics(self, num_clients: int, round_index: int) -> dict[str, float]:
        """As the rule's."""
        return self.drawn.metrics(num_clients, round_index)
