"""Which clients take part in a round, and how much each counts. Shape legend: N clients, M in the cohort."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from fedcomp.cohort import Cohort
from fedcomp.keys import Key


class Participation(Protocol):
    """A rule that draws a cohort a round."""

    def check(self, num_clients: int) -> None:
        """Before the first round: refuse settings that do not fit N clients.

        Raises:
            ValueError: naming the setting, what was given and what is allowed.
        """

    def inclusion(self, num_clients: int) -> Tensor:
        """[N] float64 in (0, 1]: the probability that a client is in a round's cohort."""

    def sample(self, key: Key, importance: Tensor) -> Cohort:
        """Draw the cohort that `key` names, after `check`.

        Args:
            key: one a round; equal keys give equal cohorts.
            importance: [N] float64 above 0 on the CPU: data sizes, or ones where all clients count alike.
        Returns:
            the cohort, on the CPU, its weights as the rule states.
        """
