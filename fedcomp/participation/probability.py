"""What the config says about the clients' probabilities, as values that hash, and the probabilities that it means.

Shape legend: N clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.validate import check_seed
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


def plain(name: str, given: object) -> Probability:
    """The setting called `name`, checked as far as it can be without N.

    Raises:
        ValueError: a probability outside (0, 1], or something else.
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
        raise ValueError(f"{name} is {given!r}, but must be {ALLOWED}")
    return float(given)


def check_length(name: str, probability: Probability, num_clients: int) -> None:
    """Raise ValueError: a list that has not one entry a client."""
    if isinstance(probability, tuple) and len(probability) != num_clients:
        raise ValueError(
            f"{name} lists {len(probability)} probabilities, but num_clients is {num_clients}; it needs one a client"
        )


@lru_cache(maxsize=64)
def probabilities(given: Probability, num_clients: int) -> Tensor:
    """[N] float64; kept, for a round may take less time than they take to build."""
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
            f"{name} is {given}, but must be {ALLOWED}, with low <= high, and alpha and beta for a Beta distribution"
        )
    for key, value in shapes.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise ValueError(f"{name}.{key} is {value!r}, but must be a number above 0")
    check_seed(f"{name}.seed", given["seed"])
    return Drawn(float(given["low"]), float(given["high"]), given["seed"], **{k: float(v) for k, v in shapes.items()})


def _ascending(*values: object) -> bool:
    """Numbers above 0 and at most 1, none below the one before it."""
    previous = 0.0
    for value in values:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1 or value < previous:
            return False
        previous = value
    return True
