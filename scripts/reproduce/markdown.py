"""Text of a page from records: tables, means over seeds, verdicts. What was not run is an empty cell."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median, stdev

from fedcomp.display import units
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.history import shown
from scripts.reproduce.records import Records, Run

Cell = Callable[[Records], str]
"""The text of a table's cell, from its runs, of which there is at least one."""


def table(corner: str, rows: Sequence[tuple[str, Records]], columns: Sequence[tuple[str, Cell]]) -> str:
    """A Markdown table.

    Args:
        corner: title of the first column.
        rows: the first cell of a row and the runs of its other cells; rows without runs are left out, and a
            table without rows is empty.
        columns: title, and the cell's text.
    """
    lines = [[corner, *(title for title, _ in columns)], ["---", *("---:" for _ in columns)]]
    lines += [[name, *(cell(runs) for _, cell in columns)] for name, runs in rows if runs]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if len(lines) > 2 else ""


def spread(values: Sequence[float], show: Callable[[float], str], scale: float = 1.0) -> str:
    """Mean ± sample standard deviation of one value a seed; the value alone where all are equal; of none nothing."""
    if not values:
        return ""
    if min(values) == max(values):
        return show(scale * values[0])
    return f"{show(scale * fmean(values))} ± {show(scale * stdev(values))}"


def measured(values: Sequence[float], show: Callable[[float], str], scale: float = 1.0) -> str:
    """As `spread`, of a quantity without usual decimals: two digits of the deviation, the mean to the same decimal."""
    if len(set(values)) < 2:
        return spread(values, show, scale)
    return units.mean_and_deviation(scale * fmean(values), scale * stdev(values))


def middle(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Median (smallest to largest) of one value a seed."""
    if not values:
        return ""
    return f"{show(median(values))} ({show(min(values))}–{show(max(values))})" if len(values) > 1 else show(values[0])


def average(records: Records, value: Callable[[Run], float | None]) -> float | None:
    """The mean over runs; None where no run has the value."""
    found = records.collect(value)
    return fmean(found) if found else None


def claims(rows: Sequence[tuple[str, str, Experiment | str]]) -> str:
    """The table of a paper's claims: what it says, what became of it, and by which of the commands and tests below.

    A claim of which nothing is said is not decided yet, by runs that are not at their end or leave it open; one that no
    experiment here is about is not judged.
    """
    sources = [one.shown if isinstance(one, Experiment) else one and f"`{one}`" for _, _, one in rows]
    numbers = {source: number for number, source in enumerate(dict.fromkeys(filter(None, sources)), start=1)}
    lines = ["| claim of the paper | here | shown by |", "| --- | --- | ---: |"]
    lines += [
        f"| {claim} | {found or ('not decided yet' if source else 'not judged')} | {numbers.get(source, '')} |"
        for (claim, found, _), source in zip(rows, sources, strict=True)
    ]
    return "\n".join([*lines, "", *(f"{number}. {source}" for source, number in numbers.items())])


def rounds(runs: Records) -> str:
    """A cell: the rounds that all these runs have done, and of how many if there are more to come."""
    done, planned = min(run.rounds for run in runs), max(int(run.about["of_rounds"]) for run in runs)
    return str(done) if done >= planned else f"{done} of {planned}"


def picture(caption: str, file: str, records: Records) -> str:
    """A picture of `fedcomp-report`; nothing where nothing was run."""
    return f"![{caption}]({file})" if records else ""


def verdict(holds: bool | None) -> str:
    """What became of a claim; None: what it needs has not been run."""
    return "" if holds is None else "**holds**" if holds else "**does not hold**"


def less(left: float | None, right: float | None) -> bool | None:
    """Whether left < right; None where one of them is not known."""
    return None if left is None or right is None else left < right


def every(conditions: Sequence[bool | None]) -> bool | None:
    """Whether all hold; None where one is not known, or there is none."""
    return None if not conditions or None in conditions else all(conditions)


def made_with(experiment: Experiment, records: Records) -> str:
    """The commands, and how far, on what and from which commits its runs went."""
    if not records:
        return f"{experiment.shown}: not run yet."
    seeds = len(records.values("seed"))
    parts = [
        f"{units.counted(len(records), 'run')} of {units.counted(seeds, 'seed')}",
        " and ".join(records.values("processor")),
        " and ".join(records.values("versions")),
        shown(run.about["commit"] for run in records),
    ]
    for state in ("unfinished", "failed"):
        if number := len(records.where(state=state)):
            parts.append(f"{number} {state}")
    return f"{experiment.shown}: {'; '.join(parts)}."


def what_was_run(found: Sequence[Records]) -> str:
    """The first line of a page: how many runs of how many seeds and rounds, on what, from which commits."""
    runs = [run for records in found for run in records]
    if not runs:
        return "Nothing is run yet."
    seeds = _range(len(records.values("seed")) for records in found if records)
    parts = [f"{len(runs):,} run{'s' * (len(runs) > 1)} of {seeds} seed{'s' * (seeds != '1')}"]
    states = Counter(run.about["state"] for run in runs)
    parts += [f"{states[state]} {state}" for state in ("unfinished", "failed") if states[state]]
    parts += [f"{_range(run.rounds for run in runs)} rounds", *sorted({run.about["processor"] for run in runs})]
    return f"What was run: {'; '.join([*parts, shown(run.about['commit'] for run in runs)])}."


def _range(numbers: Iterable[int]) -> str:
    ordered = sorted(numbers)
    return f"{ordered[0]:,}" if ordered[0] == ordered[-1] else f"{ordered[0]:,} to {ordered[-1]:,}"


def last(metric: str, show: Callable[[float], str] | None = None, scale: float = 1.0) -> Cell:
    """A cell with the metric at the last evaluation, mean ± deviation over seeds."""

    def cell(runs: Records) -> str:
        values = runs.collect(lambda run: run.last(metric))
        return spread(values, show, scale) if show else measured(values, "{:.2g}".format)

    return cell


def best(metric: str, show: Callable[[float], str] = "{:.2f}".format) -> Cell:
    """A cell with the largest value of an accuracy over the rounds in percent, mean ± deviation over seeds."""
    return lambda runs: spread(runs.collect(lambda run: run.best(metric)), show, 100)


ROUNDS_AND_SEEDS: tuple[tuple[str, Cell], ...] = (("rounds", rounds), ("seeds", lambda runs: str(len(runs))))
"""The last columns of a table."""
