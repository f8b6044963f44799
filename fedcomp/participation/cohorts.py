"""What the cohorts of a run are like before they are drawn. Shape legend: N clients."""

from torch import Tensor

from fedcomp.participation.absent import WithoutAbsent
from fedcomp.participation.contract import Participation
from fedcomp.participation.uniform import Uniform
from fedcomp.random.keys import Key

NUM_COHORTS = 1000
"""Cohorts drawn to estimate a mean over random cohorts."""


def some_idle(participation: Participation, num_clients: int, rounds: int) -> bool:
    """Whether a client may be left out of a round."""
    if isinstance(participation, WithoutAbsent) and any(participation.absent.values()):
        return True
    return any(float(participation.inclusion(num_clients, index).min()) < 1 for index in range(rounds))


def cohort_size(participation: Participation, num_clients: int, rounds: int) -> int | None:
    """Clients of a round, if all rounds have as many; None: their number is random, or varies."""
    if isinstance(participation, Uniform):
        return participation.num_participants
    return None if some_idle(participation, num_clients, rounds) else num_clients


def largest_mean_squares(participation: Participation, importance: Tensor, rounds: int) -> float:
    """The largest `mean_squares` of all rounds. Rounds with equal probabilities have the same distribution."""
    first: dict[tuple[float, ...], int] = {}
    for index in range(rounds):
        first.setdefault(tuple(participation.inclusion(len(importance), index).tolist()), index)
    return max(mean_squares(participation, importance, index) for index in first.values())


def mean_squares(participation: Participation, importance: Tensor, index: int) -> float:
    """The mean of sum_i w_i^2 over the non-empty cohorts of round `index`.

    Exact with full participation; otherwise the mean of `NUM_COHORTS` cohorts, which are the same in every run.

    Args:
        importance: [N] float64 above 0: data sizes, or ones for equal weights.
    """
    full = bool((participation.inclusion(len(importance), index) == 1).all())
    sums = []
    for draw in range(1 if full else NUM_COHORTS):
        cohort = participation.sample(Key(("squared weights", draw)), importance, index)
        if cohort.size:
            sums.append(float(cohort.weight.double().square().sum()))
    return sum(sums) / max(len(sums), 1)
