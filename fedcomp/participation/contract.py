"""The contract of a participation: which clients take part in a round, and with what weight.

Shape legend: N clients.
"""

from abc import ABC, abstractmethod

from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.random.keys import Key


class Participation(ABC):
    """A rule that draws the cohort of each round."""

    def check(self, num_clients: int) -> None:
        """Before the first round: refuse settings that do not fit N clients.

        Raises ValueError: naming the setting, what was given and what is allowed.
        """
        return

    @abstractmethod
    def inclusion(self, num_clients: int, round_index: int = 0) -> Tensor:
        """[N] float64 in [0, 1]: the probability that a client is in the cohort of round `round_index`.

        0 is a client that is away in this round, such as one that is asleep; it has to come in another one.
        """

    @abstractmethod
    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        """Draw the cohort that `key` names, after `check`.

        Args:
            key: one a round; equal keys give equal cohorts.
            importance: [N] float64 above 0 on the CPU: data sizes, or ones where all clients count alike.
            round_index: 0 for the first, for rules that change over rounds.
        Returns:
            the cohort, on the CPU. Its weights are importance_i / (sum over the cohort), an average of those there, or
            such that their mean over cohorts is importance_i / (sum over all N), as importance_i / (p_i sum over all).
        """

    def metrics(self, num_clients: int, round_index: int) -> dict[str, float]:
        """Extra metrics of round `round_index`."""
        return {}
