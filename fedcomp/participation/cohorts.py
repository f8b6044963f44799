"""What the cohorts of a run are like before they are drawn. Shape legend: N clients."""

import logging

import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort, listed
from fedcomp.core.folders import name_of
from fedcomp.participation.absent import WithoutAbsent
from fedcomp.participation.contract import Participation
from fedcomp.participation.full import Full
from fedcomp.participation.uniform import Uniform
from fedcomp.random.global_draws import KEYED, no_global_draws
from fedcomp.random.keys import Key

log = logging.getLogger("fedcomp")

TOLERANCE = 1e-3
"""Relative difference of weights, which are float32, from what they should be."""
FIRST_COHORTS = 8
"""Cohorts drawn before the first round, to check them."""
TRIAL_COHORTS = 300
"""Cohorts drawn to count how often each client is in one."""
FEWEST_ROUNDS = 20
"""Of a run in which clients are counted: a rule that takes turns needs some rounds until all have had theirs."""
FAR = 6.0
"""Standard deviations by which a client may be drawn more or less often than it should be."""
NUM_COHORTS = 1000
"""Cohorts drawn to estimate a mean over random cohorts."""


def check_draws(participation: Participation, num_clients: int, rounds: int) -> None:
    """Raise ValueError if the cohort of a round is none, or not of the probabilities that the rule says.

    Cohorts of the first rounds are drawn, of clients that count alike, by other keys than the run's.
    """
    name = f"participation={name_of(participation)}"
    scaled = isinstance(participation, WithoutAbsent)  # the weights of those present, whom `inclusion` does not know
    for index in range(min(rounds, FIRST_COHORTS)):
        cohort, inclusion = first_cohort(participation, num_clients, index)
        weight, inverse = cohort.weight.double(), 1 / (num_clients * inclusion[cohort.ids])
        mean = abs(float(weight.sum()) - 1) < TOLERANCE or torch.allclose(weight, inverse, rtol=TOLERANCE)
        if cohort.size and not mean and not scaled:
            log.warning(
                f"warning: {name}: the weights of a first cohort add up to {float(weight.sum()):.3g}: they are no "
                "average of those present (weight / weight.sum()), nor 1/(N p_i), whose mean over rounds is the "
                "average of all",
                extra={"note": True},
            )
            return
    if not type(participation).__module__.startswith("fedcomp.") and rounds >= FEWEST_ROUNDS:
        _check_frequencies(participation, name, torch.ones(num_clients, dtype=torch.float64), rounds)


def first_cohort(participation: Participation, num_clients: int, index: int) -> tuple[Cohort, Tensor]:
    """A cohort of round `index`, of clients that count alike, and the rule's `inclusion`. Raises as `check_draws`."""
    name = f"participation={name_of(participation)}"
    inclusion = participation.inclusion(num_clients, index)
    if not isinstance(inclusion, Tensor) or inclusion.dtype != torch.float64 or inclusion.shape != (num_clients,):
        raise ValueError(f"{name}: inclusion must return float64 [{num_clients}], a probability for each client")
    if not bool(((inclusion >= 0) & (inclusion <= 1)).all()):
        raise ValueError(f"{name}: inclusion returned {inclusion.tolist()[:8]}, but probabilities are in [0, 1]")
    importance = torch.ones(num_clients, dtype=torch.float64)
    with no_global_draws(name):
        cohort, again = (participation.sample(Key(("first cohorts", index)), importance, index) for _ in range(2))
    if not bool((importance == 1).all()):
        raise ValueError(
            f"{name}: sample writes into the importance that it is given, which is that of all rounds: make a new "
            "tensor, as in importance / importance.sum()"
        )
    if not isinstance(cohort, Cohort):
        raise ValueError(f"{name}: sample returned a {type(cohort).__name__}, but must return a Cohort (Cohort.of)")
    cohort.check(num_clients)
    if again.clients != cohort.clients or not torch.equal(again.weight, cohort.weight):
        raise ValueError(
            f"{name} drew clients {listed(cohort.clients)}, and by the same key {listed(again.clients)}: a resumed "
            f"run would have other cohorts; {KEYED}, and keep nothing on self"
        )
    never = cohort.ids[inclusion[cohort.ids] == 0].tolist()
    if never:
        raise ValueError(
            f"{name} drew clients {listed(never)} for round {index}, although its inclusion says that they cannot "
            "be in it: it must return the probability that a client is drawn"
        )
    if cohort.size < num_clients and bool((inclusion == 1).all()) and not isinstance(participation, WithoutAbsent):
        raise ValueError(
            f"{name} drew {cohort.size} of {num_clients} clients, although its inclusion says that all take part "
            "in every round: it must return the probability that a client is drawn"
        )
    return cohort, inclusion


def _check_frequencies(participation: Participation, name: str, importance: Tensor, rounds: int) -> None:
    """Say if a client is never there, or not drawn as often as the rule's `inclusion` says, in many trial cohorts."""
    drawn, expected, variance = (torch.zeros(len(importance), dtype=torch.float64) for _ in range(3))
    for draw in range(TRIAL_COHORTS):
        index = draw % rounds
        inclusion = participation.inclusion(len(importance), index)
        drawn[participation.sample(Key(("trial cohorts", draw)), importance, index).ids] += 1
        expected += inclusion
        variance += inclusion * (1 - inclusion)
    never = (expected == 0).nonzero()[:, 0].tolist() if rounds <= TRIAL_COHORTS else []
    if never:
        log.warning(
            f"warning: {name}: by its inclusion clients {listed(never)} take part in no round", extra={"note": True}
        )
    wrong = (drawn - expected).abs() > FAR * variance.sqrt() + 1
    if bool(wrong.any()):
        client = int(wrong.nonzero()[0])
        log.warning(
            f"warning: {name} drew client {client} in {int(drawn[client])} of {TRIAL_COHORTS} trial cohorts, where its "
            f"inclusion says {float(expected[client]):.0f}: it must return the probability that a client is drawn",
            extra={"note": True},
        )


def some_idle(participation: Participation, num_clients: int, rounds: int) -> bool:
    """Whether a client may be left out of a round."""
    if isinstance(participation, WithoutAbsent) and any(participation.absent.values()):
        return True
    return any(
        float(participation.inclusion(num_clients, index).min()) < 1 for index in _differing(participation, rounds)
    )


def _differing(participation: Participation, rounds: int) -> range:
    """The rounds whose probabilities may differ: of a rule that never changes the first, of however many there are."""
    rule = participation.drawn if isinstance(participation, WithoutAbsent) else participation
    return range(1 if type(rule) in (Full, Uniform) else rounds)


def cohort_size(participation: Participation, num_clients: int, rounds: int) -> int | None:
    """Clients of a round, if all rounds have as many; None: their number is random, or varies."""
    if isinstance(participation, Uniform):
        return participation.num_participants
    return None if some_idle(participation, num_clients, rounds) else num_clients


def largest_mean_squares(participation: Participation, importance: Tensor, rounds: int) -> float:
    """The largest `mean_squares` of all rounds. Rounds with equal probabilities have the same distribution."""
    first: dict[tuple[float, ...], int] = {}
    for index in _differing(participation, rounds):
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
