"""What every participation must pass. Shape legend: N clients, R rounds."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.check.again import key, move_global_generators, same_key
from fedcomp.check.failed import described, require
from fedcomp.core.cohort import Cohort, listed
from fedcomp.participation.cohorts import TOLERANCE, first_cohort
from fedcomp.participation.contract import Participation

FEW = (1, 2, 3, 7)
"""Numbers of clients that a rule takes too, or refuses."""
DRAWS = 1000
"""Cohorts drawn of a round; of many clients fewer."""
FEWEST_DRAWS = 20
"""Of a round in which by its inclusion nobody is drawn by chance."""
FAR = 5.0
"""Standard errors."""
SEEN = 20
"""Cohorts that a client must be in for the mean of its weight to say anything."""


@dataclass(frozen=True)
class ParticipationCase:
    """A participation. name: shown with the results. make: makes it. num_clients, rounds: N and R of the run."""

    name: str
    make: Callable[[], Participation]
    num_clients: int = 20
    rounds: int = 100

    @property
    def looked_at(self) -> list[int]:
        """Some rounds; the first is 0."""
        return sorted({0, min(1, self.rounds - 1), self.rounds // 2, self.rounds - 1})

    @property
    def importance(self) -> Tensor:
        """[N] unequal numbers of samples."""
        return _importance(self.num_clients)


@dataclass(frozen=True)
class _Drawn:
    """Cohorts of round `index`, by as many keys.

    Attributes:
        num: how many. inclusion: [N] what the rule says. times: [N] how often each client was drawn.
        mean, error: [N] of each client's weight, 0 where it is not drawn, and its standard error.
        wrong: a cohort whose weights are neither all an average nor all 1/p; None: there is none.
        alike: whether all cohorts have the same clients.
    """

    index: int
    num: int
    inclusion: Tensor
    times: Tensor
    mean: Tensor
    error: Tensor
    wrong: Cohort | None
    alike: bool


def check_cohorts(case: ParticipationCase) -> None:
    """Cohorts are ascending clients with weights, of few clients too, unless `check` refuses so few."""
    for num_clients in (case.num_clients, *FEW):
        rule = case.make()
        try:
            rule.check(num_clients)
        except ValueError as refused:
            require(num_clients != case.num_clients, str(refused))
            continue
        for index in case.looked_at:
            try:
                first_cohort(rule, num_clients, index)
                rule.sample(key("cohorts", index), _importance(num_clients), index).check(num_clients)
            except ValueError as error:
                require(False, f"{num_clients} clients, round {index}: {error}")


def check_again(case: ParticipationCase) -> None:
    """Equal keys give equal cohorts: in any order of rounds, after other draws, made anew, in another process."""
    one, other = _made(case), _made(case)
    asked = [(number, index) for number in range(3) for index in case.looked_at]
    cohorts = [one.sample(key("again", number), case.importance, index) for number, index in asked]
    move_global_generators()
    for (number, index), cohort in reversed(list(zip(asked, cohorts))):
        again = other.sample(same_key("again", number), case.importance, index)
        where = f"round {index}: clients {listed(cohort.clients)}, and by the same key"
        require(again.clients == cohort.clients, f"{where} {listed(again.clients)}")
        both = again.weight, cohort.weight
        require(torch.equal(*both), f"{where} a weight {described(*both)}")
    for index in case.looked_at:
        both = other.inclusion(case.num_clients, index), one.inclusion(case.num_clients, index)
        require(torch.equal(*both), f"round {index}: inclusion, asked of the same rule made anew, {described(*both)}")


def check_inclusion(case: ParticipationCase) -> None:
    """Each client is drawn as often as `inclusion` says, within five standard errors."""
    for drawn in _drawn(case):
        expected, variance = drawn.num * drawn.inclusion, drawn.num * drawn.inclusion * (1 - drawn.inclusion)
        far = (drawn.times - expected).abs() > FAR * variance.sqrt() + 3 * (variance > 0)
        if bool(far.any()):
            client = int(far.nonzero()[0])
            alike = "; all of them are the same: draw by the key, or say 1 and 0 of those whose turn it is"
            require(
                False,
                f"round {drawn.index}: client {client} was in {int(drawn.times[client])} of {drawn.num} cohorts of as "
                f"many keys, where inclusion says {float(expected[client]):.0f}{alike if drawn.alike else ''}",
            )


def check_weights(case: ParticipationCase) -> None:
    """Weights are those of an average by samples of the clients present, or have the average of all as their mean."""
    share = case.importance / case.importance.sum()
    for drawn in _drawn(case):
        if drawn.wrong is None:
            continue
        known = (drawn.times >= SEEN) & (drawn.inclusion > 0)
        far = known & ((drawn.mean - share).abs() > FAR * drawn.error + TOLERANCE * share)
        if bool(far.any()) or not bool(known.any()):
            client, cohort = int((far if bool(far.any()) else share > 0).nonzero()[0]), drawn.wrong
            require(
                False,
                f"round {drawn.index}: clients {listed(cohort.clients)} with "
                f"{listed(case.importance[cohort.ids].int().tolist())} samples have the weights "
                f"{listed([round(one, 4) for one in cohort.weight.tolist()])}: no average of those present "
                f"(importance / its sum), and client {client} has {float(drawn.mean[client]):.3g} in the mean of "
                f"{drawn.num} cohorts, where its share of all samples is {float(share[client]):.3g}",
            )


CHECKS = (check_cohorts, check_again, check_inclusion, check_weights)


def _made(case: ParticipationCase) -> Participation:
    rule = case.make()
    rule.check(case.num_clients)
    return rule


def _importance(num_clients: int) -> Tensor:
    return torch.arange(num_clients, dtype=torch.float64) * 7 % 10 + 1


@functools.lru_cache(maxsize=1)
def _drawn(case: ParticipationCase) -> list[_Drawn]:
    return list(_draw(case))


def _draw(case: ParticipationCase) -> Iterator[_Drawn]:
    rule, importance = _made(case), case.importance
    share, most = importance / importance.sum(), max(50, min(DRAWS, 10**7 // case.num_clients))
    for index in case.looked_at:
        inclusion = rule.inclusion(case.num_clients, index)
        num = most if bool(((inclusion > 0) & (inclusion < 1)).any()) else FEWEST_DRAWS
        times, total, squares = (torch.zeros(case.num_clients, dtype=torch.float64) for _ in range(3))
        sums, inverses, seen = None, None, set()
        for number in range(num):
            cohort = rule.sample(key("draws", index, number), importance.clone(), index)
            ids, weight = cohort.ids, cohort.weight.double()
            seen.add(cohort.clients)
            times[ids] += 1
            total[ids] += weight
            squares[ids] += weight.square()
            if sums is None and not torch.allclose(weight, share[ids] / share[ids].sum(), rtol=TOLERANCE):
                sums = cohort
            if inverses is None and not torch.allclose(weight, share[ids] / inclusion[ids], rtol=TOLERANCE):
                inverses = cohort
        mean = total / num
        error = ((squares / num - mean.square()).clamp(min=0) / num).sqrt()
        wrong = sums if sums is not None and inverses is not None else None
        yield _Drawn(index, num, inclusion, times, mean, error, wrong, len(seen) == 1)
