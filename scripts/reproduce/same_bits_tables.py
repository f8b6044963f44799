"""Tables of accuracy against bits, for every task of `same_bits`."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from scripts.reproduce.difference import difference
from scripts.reproduce.markdown import Cell, rounds, spread, table
from scripts.reproduce.records import Records, Run
from scripts.reproduce.same_bits_search import ACCURACY, Task, last_accuracy

SHARES = (1 / 400, 1 / 40, 1 / 4, 1.0)
"""Of a task's limit of bits: where methods are compared."""
SHOWN_PLACES = 3


def results(records: Records, task: Task, more: Sequence[tuple[str, Cell]] = ()) -> str:
    """Of each method its accuracy in the last round, its place among several, and its bits; `more` columns behind."""
    scores = {label: _accuracies(records.where(label=label)) for label in records.values("label")}
    shared = standing(scores, task) if len(scores) > 1 else []
    place = {label: f"{1 + sum(map(len, shared[:number]))}" for number, own in enumerate(shared) for label in own}
    last = len(place) + 1

    def rank(label: str) -> tuple[int, float]:
        return int(place.get(label, last)), -fmean(_accuracies(records.where(label=label)))

    def bits(value: Callable[[Run], float | None]) -> Cell:
        return lambda runs: _megabits(_all(runs, value))

    return table(
        "",
        [(label, records.where(label=label)) for label in sorted(records.values("label"), key=rank)],
        [
            ("place", lambda runs: place.get(runs.runs[0].about["label"], "")),
            ("accuracy, %", lambda runs: spread(_accuracies(runs), "{:.1f}".format, 100)),
            ("rounds", rounds_done),
            ("Mbit up", bits(lambda run: run.last("bits/uplink"))),
            ("Mbit in all", bits(lambda run: run.last("bits/total"))),
            (f"Mbit up to {task.target} %", bits(_to(task.target / 100, "bits/uplink"))),
            (f"Mbit in all to {task.target} %", bits(_to(task.target / 100, "bits/total"))),
            *more,
        ],
    )


def leaders(records: Records, task: Task, what: str, bits: str, share: float) -> str:
    """The first three places by the time that so many bits were sent, among methods all of whose seeds sent some.

    Args:
        what: which bits, in words. bits: the metric. share: of the task's limit, which is that of both directions.
    """
    if not records:
        return ""
    lines = [f"| accuracy by bits {what} | first | second | third |", f"| --- |{' --- |' * SHOWN_PLACES}"]
    for part in SHARES:
        limit = part * share * task.max_bits
        found = {label: _all(records.where(label=label), by(limit, bits)) for label in records.values("label")}
        shared = standing({label: own for label, own in found.items() if own}, task)[:SHOWN_PLACES]
        cells = ["; ".join(f"{label} {100 * fmean(found[label]):.1f}" for label in own) for own in shared]
        name = f"{_megabits([limit])} Mbit"
        lines.append(f"| {' | '.join([name, *cells, *[''] * (SHOWN_PLACES - len(cells))])} |")
    return "\n".join(lines)


def standing(scores: dict[str, list[float]], task: Task) -> list[list[str]]:
    """`places` of the methods that are not near chance; none at all where one has a single seed."""
    above = {label: own for label, own in scores.items() if not task.near_chance(fmean(own))}
    return places(above, task.num_test) if all(len(own) > 1 for own in above.values()) else []


def places(scores: Mapping[str, Sequence[float]], num_test: int) -> list[list[str]]:
    """Labels by place, best first: the best of those left, with all that differ from it by no more than its error.

    Args:
        scores: {label: accuracy of each seed, two or more, in [0, 1]}.
        num_test: predictions on the test set, which is the same for all.
    """
    left = sorted(scores, key=lambda label: -fmean(scores[label]))
    found = []
    while left:
        best = scores[left[0]]
        found.append([one for one in left if one == left[0] or difference(best, scores[one], num_test).sign == 0])
        left = [label for label in left if label not in found[-1]]
    return found


def by(limit: float, bits: str) -> Callable[[Run], float | None]:
    """The accuracy of the last evaluation by the time that so many bits were sent; None: there was none."""

    def value(run: Run) -> float | None:
        return next((line[ACCURACY] for line in reversed(run.lines) if 0 < line[bits] <= limit), None)

    return value


def _to(target: float, bits: str) -> Callable[[Run], float | None]:
    """Bits when the accuracy was first evaluated to be so high."""
    return lambda run: next((line[bits] for line in run.lines if line.get(ACCURACY, 0) >= target), None)


def _megabits(bits: Sequence[float]) -> str:
    """The mean of numbers of bits, in megabits; nothing where there is none."""
    if not bits:
        return ""
    mean = fmean(bits) / 1e6
    return f"{mean:.3g}" if mean < 1000 else f"{mean:.0f}"


def _all(runs: Records, value: Callable[[Run], float | None]) -> list[float]:
    """One value a run; none at all where a run has none."""
    found = runs.collect(value)
    return found if len(found) == len(runs) else []


def rounds_done(runs: Records) -> str:
    """A cell: the rounds that were done, where the budget of bits may end a run."""
    return (
        str(min(run.rounds for run in runs)) if all(run.about["state"] == "finished" for run in runs) else rounds(runs)
    )


def _accuracies(runs: Records) -> list[float]:
    return [last_accuracy(run) for run in runs]
