"""Uniform participation: a fixed number of clients a round, without replacement, all equally likely."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.core.validate import as_typed, is_whole
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class Uniform(Participation):
    """M of N clients; weight_i = importance_i / (sum over the cohort): an average of those present.

    With equal importance its expectation is the average over all N clients. With unequal importance it is biased a
    little, as a ratio of two random sums is; this is what FedAvg does, and what FedMRN's official code does.
    """

    num_participants: int = 10

    def check(self, num_clients: int) -> None:
        """As `Participation.check`: M must be a whole number from 1 to N."""
        given = self.num_participants
        if not is_whole(given) or not 1 <= given <= num_clients:
            raise ValueError(
                f"participation.num_participants={as_typed(given)} must be a whole number from 1 to "
                f"num_clients={num_clients}; take participation=full for all"
            )

    def inclusion(self, num_clients: int, round_index: int = 0) -> Tensor:
        return torch.full((num_clients,), self.num_participants / num_clients, dtype=torch.float64)

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        assert 1 <= self.num_participants <= len(importance), "check(num_clients) comes first"
        order = torch.randperm(len(importance), generator=key.generator())
        clients = order[: self.num_participants].sort().values
        weight = importance[clients]
        return Cohort.of(clients.tolist(), weight / weight.sum())
