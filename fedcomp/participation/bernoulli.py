"""Bernoulli participation: each client takes part with a probability of its own.

M. Rostami, S. S. Kia, "Federated learning using variance reduced stochastic gradient for probabilistically activated
agents", ACC 2023: 1_i^k ~ Bernoulli(p_i^k), and the server divides by N p_i^k, which keeps the aggregate unbiased
whoever is rare; the server must know p, and no bit is counted for asking who is there. For fixed changes Delta_i the
aggregate has the variance (1/N^2) sum_i (1/p_i - 1) ||Delta_i||^2. The paper does not say its p_i: {low: 0.3, high: 1,
seed: 0} is ours. A small p times a large 1/p overshoots; runs record the largest 1/p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.participation.probability import Probability, check_length, plain, probabilities
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class Bernoulli:
    """weight_i = importance_i / (sum over all N clients) / p_i; 1 / (N p_i) where all count alike.

    The weights of a cohort do not sum to 1, only their expectation over cohorts does. Nobody present is a legal round.

    Attributes:
        probability: p, above 0 and at most 1: one number for all clients; a list of N; or low, high and seed (with
            alpha and beta, if not uniform), drawn once for that seed, the same in every run. Kept as a float, tuple or
            `Drawn`.
        schedule: {round: probability} of any of these forms, from that round on (0 is the first) until the next one;
            None: `probability` holds throughout. Kept as a tuple of (round, probability), by round.
    """

    probability: float | Sequence[float] | Mapping[str, float]
    schedule: Mapping[int, Any] | tuple[tuple[int, Probability], ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", plain("participation.probability", self.probability))
        object.__setattr__(self, "schedule", _steps(self.schedule))

    def check(self, num_clients: int) -> None:
        """As `Participation.check`: a list of probabilities must have N entries."""
        check_length("participation.probability", self.at(-1), num_clients)
        for start, probability in self.steps:
            check_length(f"participation.schedule[{start}]", probability, num_clients)

    @property
    def steps(self) -> tuple[tuple[int, Probability], ...]:
        """The schedule's (round, probability), by round."""
        return self.schedule if isinstance(self.schedule, tuple) else ()

    def at(self, round_index: int) -> Probability:
        """What holds in round `round_index` (0 is the first; -1: before any step of the schedule)."""
        current: Any = self.probability
        for start, probability in self.steps:
            if start > round_index:
                break
            current = probability
        return current

    def inclusion(self, num_clients: int, round_index: int = 0) -> Tensor:
        """p."""
        return probabilities(self.at(round_index), num_clients)

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        """As `Participation.sample`."""
        # In numpy, whose calls cost a third of torch's on as few numbers as there are clients.
        probability, counts = self.inclusion(len(importance), round_index).numpy(), importance.numpy()
        coin = torch.rand(len(importance), generator=key.generator(), dtype=torch.float64).numpy()
        clients = np.flatnonzero(coin < probability)
        weight = (counts[clients] / (counts.sum() * probability[clients])).astype(np.float32)
        return Cohort(torch.from_numpy(clients), torch.from_numpy(weight), tuple(clients.tolist()))

    def metrics(self, num_clients: int, round_index: int) -> dict[str, float]:
        """The largest 1/p, by which a change may be stretched."""
        return {"participation/max_inverse": float(1 / self.inclusion(num_clients, round_index).min())}


def _steps(given: object) -> tuple[tuple[int, Probability], ...] | None:
    """The schedule by round, checked as far as it can be without N."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            f"participation.schedule is {given!r}, but must be {{round: probability}} such as {{0: 0.9, 50: 0.3}}"
        )
    for start in given:
        if not isinstance(start, int) or isinstance(start, bool) or start < 0:
            raise ValueError(f"participation.schedule has round {start!r}, but rounds are whole numbers, 0 or more")
    return tuple((start, plain(f"participation.schedule[{start}]", given[start])) for start in sorted(given))
