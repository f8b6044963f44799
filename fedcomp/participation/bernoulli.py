"""Bernoulli participation: each client takes part with a probability of its own.

M. Rostami, S. S. Kia, "Federated learning using variance reduced stochastic gradient for probabilistically activated
agents", ACC 2023: 1_i^k ~ Bernoulli(p_i^k), and the server divides by N p_i^k, which keeps the aggregate unbiased
for any p; the server must know p, and finding out which clients are active costs no bit. For fixed changes Delta_i the
aggregate has the variance (1/N^2) sum_i (1/p_i - 1) ||Delta_i||^2. The paper does not say its p_i: {low: 0.3, high: 1,
seed: 0} is ours. A small p times a large 1/p overshoots; runs record the largest 1/p.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.core.validate import as_typed, check_interval, check_seed, is_number, is_whole
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key

ALLOWED = "a number above 0 and at most 1, a list of one a client, or {low: 0.3, high: 1.0, seed: 0}"


@dataclass(frozen=True)
class Drawn:
    """p_i ~ low + (high - low) Beta(alpha, beta), drawn once for `seed`; alpha = beta = 1 is U(low, high)."""

    low: float
    high: float
    seed: int
    alpha: float = 1.0
    beta: float = 1.0

    def draw(self, num_clients: int) -> Tensor:
        """[N] float64 probabilities."""
        key = Key(("participation", "probability", self.seed))
        if self.alpha == self.beta == 1:
            draws = torch.rand(num_clients, generator=key.generator(), dtype=torch.float64)
        else:
            draws = torch.from_numpy(np.random.default_rng(key.seed).beta(self.alpha, self.beta, num_clients))
        return self.low + (self.high - self.low) * draws


Probability = float | tuple[float, ...] | Drawn
"""One for all clients, one for each, or drawn."""


@dataclass(unsafe_hash=True)
class Bernoulli(Participation):
    """weight_i = importance_i / (sum over all N clients) / p_i; 1 / (N p_i) where all count alike.

    The weights of a cohort do not sum to 1, only their expectation over cohorts does. An empty cohort is allowed.

    Attributes:
        probability: p, above 0 and at most 1: one number for all clients; a list of N; or low, high and seed (with
            alpha and beta, if not uniform), drawn once for that seed, the same in every run. Kept as a float, tuple or
            `Drawn`.
        schedule: {round: probability} of any of these forms, from that round on (0 is the first) until the next one;
            None: `probability` in every round. Kept as a tuple of (round, probability), by round.
    """

    probability: float | Sequence[float] | Mapping[str, float] | Drawn
    schedule: Mapping[int, Any] | tuple[tuple[int, Probability], ...] | None = None

    def __post_init__(self) -> None:
        self.probability = _plain("participation.probability", self.probability)
        self.schedule = _steps(self.schedule)

    def check(self, num_clients: int) -> None:
        """As `Participation.check`: a list of probabilities must have N entries."""
        _check_length("participation.probability", self.at(-1), num_clients)
        for start, probability in self.steps:
            _check_length(f"participation.schedule[{start}]", probability, num_clients)

    @property
    def steps(self) -> tuple[tuple[int, Probability], ...]:
        """The schedule's (round, probability), by round."""
        return self.schedule if isinstance(self.schedule, tuple) else ()

    def at(self, round_index: int) -> Probability:
        """The probability in round `round_index` (0 is the first; -1: before any step of the schedule)."""
        current: Any = self.probability
        for start, probability in self.steps:
            if start > round_index:
                break
            current = probability
        return current

    def inclusion(self, num_clients: int, round_index: int = 0) -> Tensor:
        """p."""
        return _probabilities(self.at(round_index), num_clients)

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        """As `Participation.sample`."""
        # In numpy, whose calls cost a third of torch's on as few numbers as there are clients.
        probability, counts = self.inclusion(len(importance), round_index).numpy(), importance.numpy()
        coin = torch.rand(len(importance), generator=key.generator(), dtype=torch.float64).numpy()
        clients = np.flatnonzero(coin < probability)
        weight = (counts[clients] / (counts.sum() * probability[clients])).astype(np.float32)
        return Cohort(torch.from_numpy(clients), torch.from_numpy(weight), tuple(clients.tolist()))

    def metrics(self, num_clients: int, round_index: int) -> dict[str, float]:
        """The largest 1/p, which bounds how much a client's change is scaled up."""
        return {"participation/max_inverse": float(1 / self.inclusion(num_clients, round_index).min())}


def _steps(given: object) -> tuple[tuple[int, Probability], ...] | None:
    """The schedule by round, checked as far as possible without N."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise ValueError(f"participation.schedule={given} must be {{round: probability}} such as {{0: 0.9, 50: 0.3}}")
    for start in given:
        if not is_whole(start) or start < 0:
            raise ValueError(f"participation.schedule has round {start!r}, but rounds are whole numbers, 0 or more")
    return tuple((start, _plain(f"participation.schedule[{start}]", given[start])) for start in sorted(given))


def _plain(name: str, given: object) -> Probability:
    """The option called `name` as a hashable value, checked as far as possible without N.

    Raises ValueError: a probability outside (0, 1], or something else.
    """
    if isinstance(given, Mapping):
        return _drawn(name, given)
    if isinstance(given, Sequence) and not isinstance(given, str):
        for client, probability in enumerate(given):
            if not _ascending(probability):
                raise ValueError(
                    f"{name} is {probability!r} for client {client}, but must be above 0 and at most 1; a client that "
                    "never takes part cannot be weighted by 1/p"
                )
        return tuple(float(probability) for probability in given)
    if not isinstance(given, (int, float)) or not _ascending(given):
        raise ValueError(f"{name}={as_typed(given)} must be {ALLOWED}")
    return float(given)


def _check_length(name: str, probability: Probability, num_clients: int) -> None:
    """ValueError for a list that does not have one entry a client."""
    if isinstance(probability, tuple) and len(probability) != num_clients:
        raise ValueError(
            f"{name} lists {len(probability)} probabilities, but num_clients is {num_clients}; it needs one a client"
        )


@lru_cache(maxsize=64)
def _probabilities(given: Probability, num_clients: int) -> Tensor:
    """[N] float64; cached, since building them may take longer than a round."""
    if isinstance(given, Drawn):
        return given.draw(num_clients)
    if isinstance(given, tuple):
        return torch.tensor(given, dtype=torch.float64)
    return torch.full((num_clients,), given, dtype=torch.float64)


def _drawn(name: str, given: Mapping) -> Drawn:
    names = [field.name for field in fields(Drawn)]
    shapes = {key: given[key] for key in ("alpha", "beta") if key in given}
    wrong = not {"low", "high", "seed"} <= set(given) <= set(names) or len(shapes) == 1
    if wrong or not _ascending(given["low"], given["high"]):
        raise ValueError(
            f"{name}={given} must be {ALLOWED}, with low <= high, and alpha and beta for a Beta distribution"
        )
    for key, value in shapes.items():
        check_interval(f"{name}.{key}", value, "(0, inf)")
    check_seed(f"{name}.seed", given["seed"])
    return Drawn(float(given["low"]), float(given["high"]), given["seed"], **{k: float(v) for k, v in shapes.items()})


def _ascending(*values: object) -> bool:
    """Numbers above 0 and at most 1, none below the one before it."""
    previous = 0.0
    for value in values:
        if not is_number(value) or not 0 < value <= 1 or value < previous:
            return False
        previous = value
    return True
