"""Bernoulli participation: each client takes part by its own coin.

M. Rostami, S. S. Kia, "Federated learning using variance reduced stochastic gradient for probabilistically activated
agents", ACC 2023: 1_i ~ Bernoulli(p_i), and the server divides by N p_i, which keeps the aggregate unbiased whoever
is rare. The paper does not say its p_i: {low: 0.3, high: 1.0, seed: 0} is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedcomp.cohort import Cohort
from fedcomp.keys import Key

ALLOWED = "a number above 0 and at most 1, a list of one a client, or {low: 0.3, high: 1.0, seed: 0}"


class Drawn(NamedTuple):
    """p_i ~ U(low, high), drawn once for `seed`."""

    low: float
    high: float
    seed: int


@dataclass(frozen=True)
class Bernoulli:
    """weight_i = importance_i / (sum over all N clients) / p_i; 1 / (N p_i) where all count alike.

    The weights of a cohort do not sum to 1, only their expectation over cohorts does. Nobody present is a legal round.

    Attributes:
        probability: p, above 0 and at most 1: one number for all clients; a list of N; or low, high and seed, for
            p_i ~ U(low, high) drawn once for that seed, the same in every round and run. Kept as a float, tuple or
            `Drawn`.
    """

    probability: float | Sequence[float] | Mapping[str, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", _plain(self.probability))

    def check(self, num_clients: int) -> None:
        """As `Participation.check`: a list of probabilities must have N entries."""
        given = self.probability
        if isinstance(given, tuple) and not isinstance(given, Drawn) and len(given) != num_clients:
            raise ValueError(
                f"participation.probability lists {len(given)} probabilities, but num_clients is {num_clients}; "
                "it needs one a client"
            )

    def inclusion(self, num_clients: int) -> Tensor:
        """p."""
        return _probabilities(self.probability, num_clients)

    def sample(self, key: Key, importance: Tensor) -> Cohort:
        """As `Participation.sample`."""
        probability = self.inclusion(len(importance))
        coin = torch.rand(len(importance), generator=key.generator(), dtype=torch.float64)
        clients = (coin < probability).nonzero()[:, 0]
        weight = importance[clients] / (importance.sum() * probability[clients])
        return Cohort.of(clients.tolist(), weight)


def _plain(given: object) -> float | tuple[float, ...] | Drawn:
    """The setting as a value that hashes, checked as far as it can be without N."""
    if isinstance(given, Mapping):
        if set(given) != set(Drawn._fields) or not _is_probability(given["low"], given["high"]):
            raise ValueError(f"participation.probability is {given}, but must be {ALLOWED}, with low <= high")
        if not isinstance(given["seed"], int):
            raise ValueError(f"participation.probability.seed is {given['seed']!r}, but must be a whole number")
        return Drawn(float(given["low"]), float(given["high"]), given["seed"])
    if isinstance(given, Sequence) and not isinstance(given, str):
        for client, probability in enumerate(given):
            if not _is_probability(probability):
                raise ValueError(
                    f"participation.probability is {probability!r} for client {client}, but must be above 0 and at "
                    "most 1; a client that never takes part cannot be weighted by 1/p"
                )
        return tuple(float(probability) for probability in given)
    if not isinstance(given, (int, float)) or not _is_probability(given):
        raise ValueError(f"participation.probability is {given!r}, but must be {ALLOWED}")
    return float(given)


def _is_probability(*ascending: object) -> bool:
    """Numbers above 0 and at most 1, none below the one before it."""
    previous = 0.0
    for value in ascending:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1 or value < previous:
            return False
        previous = value
    return True


@lru_cache(maxsize=8)
def _probabilities(given: float | tuple[float, ...] | Drawn, num_clients: int) -> Tensor:
    """[N] float64; kept, for a round may take less time than they take to build."""
    if isinstance(given, Drawn):
        generator = Key(("participation", "probability", given.seed)).generator()
        draws = torch.rand(num_clients, generator=generator, dtype=torch.float64)
        return given.low + (given.high - given.low) * draws
    if isinstance(given, tuple):
        return torch.tensor(given, dtype=torch.float64)
    return torch.full((num_clients,), given, dtype=torch.float64)
