"""Groups as rows of a table: for the terminal, as Markdown, as CSV.

The terminal and Markdown show accuracies in percent and three digits of everything else; CSV holds the raw numbers.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedcomp.report.group import Group
from fedcomp.report.runs import Run
from fedcomp.tracking import units

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Mean:
    """Mean over seeds.

    Attributes:
        mean: of the runs that have the value; NaN as soon as one of them is (a run that diverged stays visible).
        deviation: sample standard deviation (n - 1); None for a single seed.
        num_seeds: n.
    """

    mean: float
    deviation: float | None
    num_seeds: int


def mean_over_seeds(values: Sequence[float]) -> Mean:
    """Mean and sample deviation, sqrt(sum (x - mean)^2 / (n - 1)), of at least one value."""
    assert values
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Mean(mean, None, 1)
    return Mean(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)), len(values))


@dataclass(frozen=True)
class Column:
    """One quantity of a run.

    Attributes:
        title: with its unit, for people.
        name: for CSV.
        value: the quantity of one run with at least one line; None if the run has none.
        show: the number for people.
        deviation: whether the table for people shows the deviation over seeds (CSV always does).
    """

    title: str
    name: str
    value: Callable[[Run], float | None]
    show: Callable[[float], str]
    deviation: bool = False


def _last(key: str) -> Callable[[Run], float | None]:
    return lambda run: run.lines[-1].get(key)


def _best(key: str, pick: Callable[[list[float]], float]) -> Callable[[Run], float | None]:
    def best(run: Run) -> float | None:
        values = [line[key] for line in run.lines if key in line]
        finite = [value for value in values if math.isfinite(value)]
        return pick(finite or values) if values else None

    return best


def _paper(key: str) -> Callable[[Run], float | None]:
    """The paper's count, where it is another than the true one."""

    def counted(run: Run) -> float | None:
        last = run.lines[-1]
        return None if last.get(f"paper/{key}") == last.get(key) else last.get(f"paper/{key}")

    return counted


def _bits_columns(paper: bool) -> list[Column]:
    keys = {f"bpp/{way}": way for way in ("uplink", "downlink", "broadcast")} | {"bits/total": "total bits"}
    prefix, suffix = ("paper_", " (paper)") if paper else ("", "")
    return [
        Column(
            f"{title}{suffix}",
            prefix + key.replace("/", "_"),
            _paper(key) if paper else _last(key),
            units.bits if key == "bits/total" else units.significant,
        )
        for key, title in keys.items()
    ]


COLUMNS: tuple[Column, ...] = (
    Column("test accuracy (%)", "test_accuracy", _last("test/accuracy"), units.percent, deviation=True),
    Column("best (%)", "best_test_accuracy", _best("test/accuracy", max), units.percent, deviation=True),
    Column("test loss", "test_loss", _last("test/loss"), units.significant, deviation=True),
    *(column for pair in zip(_bits_columns(False), _bits_columns(True)) for column in pair),
    Column("time", "seconds", _last("seconds"), units.duration),
)
"""Every quantity a table can show; `build` keeps those that some run has. Uplink, downlink and broadcast are bits per
parameter, client and round; where a method's paper counts otherwise, its count stands beside the true one."""


@dataclass(frozen=True)
class ResultTable:
    """Rows of means.

    Attributes:
        columns: C quantities.
        rows: (label, seeds, C means or None), one a group.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, int, tuple[Mean | None, ...]], ...]


def build(groups: Sequence[Group]) -> ResultTable:
    """The table of these groups at each run's last evaluation, without the columns that no run fills."""
    rows = [(one.label, len(one.runs), [_mean(column, one) for column in COLUMNS]) for one in groups]
    kept = [index for index in range(len(COLUMNS)) if any(means[index] is not None for _, _, means in rows)]
    return ResultTable(
        tuple(COLUMNS[index] for index in kept),
        tuple((label, seeds, tuple(means[index] for index in kept)) for label, seeds, means in rows),
    )


def to_rich(table: ResultTable) -> Table:
    """For the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    out = RichTable(box=SIMPLE_HEAD, caption=CAPTION, caption_justify="left")
    for index, title in enumerate(_titles(table)):
        out.add_column(title, justify="left" if index == 0 else "right", overflow="fold")
    for cells in _cells(table):
        out.add_row(*(cell.replace("[", r"\[") for cell in cells))
    return out


def to_markdown(table: ResultTable) -> str:
    """For a README: a Markdown table and its caption."""
    titles = _titles(table)
    lines = ["| " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) - 1)]
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |" for cells in _cells(table)]
    return "\n".join([*lines, "", CAPTION, ""])


def to_csv(table: ResultTable) -> str:
    """For other programs: raw numbers, `<name>` the mean and `<name>_std` the sample deviation, empty where unknown."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["method", "seeds", *(name for column in table.columns for name in (column.name, column.name + "_std"))]
    )
    for label, seeds, means in table.rows:
        numbers: list[float | None] = []
        for mean in means:
            numbers += [None, None] if mean is None else [mean.mean, mean.deviation]
        writer.writerow([label, seeds, *("" if number is None else repr(number) for number in numbers)])
    return out.getvalue()


CAPTION = (
    "Last evaluation, mean ± sample deviation over seeds. "
    "Uplink, downlink, broadcast: bits per parameter, client and round."
)


def _mean(column: Column, one: Group) -> Mean | None:
    values = [value for run in one.runs if (value := column.value(run)) is not None]
    return mean_over_seeds(values) if values else None


def _titles(table: ResultTable) -> list[str]:
    return ["method", *(column.title for column in table.columns), "seeds"]


def _cells(table: ResultTable) -> list[list[str]]:
    """The table as text, one list a row."""
    return [
        [label, *(_cell(column, mean) for column, mean in zip(table.columns, means)), str(seeds)]
        for label, seeds, means in table.rows
    ]


def _cell(column: Column, mean: Mean | None) -> str:
    if mean is None:
        return "–"
    text = column.show(mean.mean)
    if column.deviation and mean.deviation is not None:
        text += f" ± {column.show(mean.deviation)}"
    return text
