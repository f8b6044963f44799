"""Tables and pictures of accuracy against bits, for every task of `same_bits`."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

from scripts.reproduce.markdown import Cell, rounds, spread, table
from scripts.reproduce.records import Records, Run
from scripts.reproduce.same_bits_places import places
from scripts.reproduce.same_bits_search import ACCURACY, Task, last_accuracy

SHARES = (1 / 400, 1 / 40, 1 / 4, 1.0)
"""Of a task's limit of bits: where methods are compared."""
SHOWN_PLACES = 3
ACCURACY_TICKS = (0, 10, 20, 40, 60, 70, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99, 99.5)
"""Percent."""
SMALLEST_ERROR = 0.1
"""Percent: where an accuracy of 100 % is drawn."""


def results(records: Records, task: Task, more: Sequence[tuple[str, Cell]] = ()) -> str:
    """Of each method its accuracy in the last round, its place, and its bits; `more` columns behind them."""
    shared = standing({label: _accuracies(records.where(label=label)) for label in records.values("label")}, task)
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


def by(limit: float, bits: str) -> Callable[[Run], float | None]:
    """The accuracy of the last evaluation by the time that so many bits were sent; None: there was none."""

    def value(run: Run) -> float | None:
        return next((line[ACCURACY] for line in reversed(run.lines) if 0 < line[bits] <= limit), None)

    return value


def picture(records: Records, file: str) -> str:
    """The line of a page that shows it; nothing where nothing was run."""
    return f"![Accuracy against bits in both directions]({file})" if records else ""


def draw_curves(records: Records, path: Path) -> None:
    """Accuracy against total bits, best first in the legend; nothing where nothing was run.

    Both axes are logarithmic, that of the accuracy in its errors: 96 and 98 % are as far apart as 60 and 80 %.
    What is best for some number of bits is drawn thick.
    """
    if not records:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 7), layout="constrained")
    drawn = {label: _curve(records.where(label=label)) for label in records.values("label")}
    first = first_for_some_bits(drawn)
    for number, label in enumerate(sorted(drawn, key=lambda label: -drawn[label][1][-1])):
        bits, accuracy = drawn[label]
        style, thick = ("-", "--", ":", "-.")[number // 10], label in first
        width = 2.4 if thick else 1.1
        axes.plot(bits, _errors(accuracy), style, color=f"C{number % 10}", linewidth=width, label=label)
    errors = _errors(value for _, accuracy in drawn.values() for value in accuracy)
    smallest, largest = min(errors), max(errors)
    shown = [value for value in ACCURACY_TICKS if 0.8 * smallest <= 100 - value <= 1.02 * largest]
    axes.set(xscale="log", yscale="log", ylim=(min(100.0, 1.02 * largest), 0.9 * smallest))
    axes.set(xlabel="bits sent in both directions", ylabel="test accuracy, % (log scale of errors)")
    axes.set_yticks([100 - value for value in shown], [f"{value}" for value in shown])
    axes.set_yticks([], minor=True)
    axes.grid(alpha=0.3)
    title = "best at its last bits first;\nthick: best for some bits"
    figure.legend(loc="outside right center", fontsize=9, frameon=False, title=title, alignment="left")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _errors(accuracy: Iterable[float]) -> list[float]:
    """Percent, of accuracies in percent; above 0, which has no place on a log scale."""
    return [max(100 - value, SMALLEST_ERROR) for value in accuracy]


def first_for_some_bits(drawn: dict[str, tuple[list[float], list[float]]]) -> set[str]:
    """Labels whose accuracy at some number of bits nothing has reached with as few."""
    points = sorted(
        (bits, -accuracy, label) for label, own in drawn.items() for bits, accuracy in zip(*own, strict=True)
    )
    found, best = set(), 0.0
    for _, negative, label in points:
        if -negative > best:
            found.add(label)
            best = -negative
    return found


def _curve(runs: Records) -> tuple[list[float], list[float]]:
    """(total bits, accuracy in percent), means over the seeds at the rounds that all have, from the first bits on."""
    lines = [{line["round"]: line for line in run.lines} for run in runs]
    shared = sorted(set.intersection(*(set(one) for one in lines)) - {0.0})
    means = [[sum(one[at][name] for one in lines) / len(lines) for at in shared] for name in ("bits/total", ACCURACY)]
    return means[0], [100 * value for value in means[1]]


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
