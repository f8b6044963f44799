"""Whether the weights of a run's clients let the errors of its estimators grow, asked before the first round.

Shape legend: N clients.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedcomp.compressor import Compressor
from fedcomp.compressor.contract import Recursive
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key
from fedcomp.simulation.simulation import Simulation

DRAWS = 1000
"""Cohorts that a mean over random cohorts is taken of."""


def check_growth(simulation: Simulation) -> None:
    """Raise ValueError if an estimator of the run would diverge with the weights that its clients have.

    Messages up are weighted as the participation says; the server is the only sender down, with weight 1.
    """
    algorithm: Any = simulation.algorithm
    if not getattr(algorithm, "remembers", True):
        return
    dim = simulation.model.dim
    for name in ("uplink", "downlink"):
        compressor = getattr(algorithm, name, None)
        if not isinstance(compressor, Compressor) or not isinstance(compressor.estimator, Recursive):
            continue
        if name == "uplink":
            compressor.check_weights(dim, largest_squares(simulation))
            continue
        try:
            compressor.check_weights(dim, 1.0)
        except ValueError as error:
            raise ValueError(str(error).replace("compressor.", "downlink.")) from error


def largest_squares(simulation: Simulation) -> float:
    """The mean of sum_i w_i^2 over the cohorts of a round, for the rounds in which it is largest."""
    num_clients, participation = len(simulation.shards.sizes), simulation.participation
    first: dict[tuple[float, ...], int] = {}  # rounds with the same probabilities draw from the same cohorts
    for index in range(simulation.rounds):
        first.setdefault(tuple(participation.inclusion(num_clients, index).tolist()), index)
    return max(mean_squares(participation, simulation.importance, index) for index in first.values())


def mean_squares(participation: Participation, importance: Tensor, index: int) -> float:
    """The mean of sum_i w_i^2 over cohorts of round `index`, of which empty ones, that change nothing, are left out.

    Exact where everybody takes part; else of `DRAWS` cohorts that are the same in every run.

    Args:
        importance: [N] float64, how much each client counts.
    """
    everybody = bool((participation.inclusion(len(importance), index) == 1).all())
    found = []
    for draw in range(1 if everybody else DRAWS):
        cohort = participation.sample(Key(("squared weights", draw)), importance, index)
        if cohort.size:
            found.append(float(cohort.weight.double().square().sum()))
    return sum(found) / max(len(found), 1)
