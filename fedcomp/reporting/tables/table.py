"""The table of results: a row for each group of runs, with the quantities that some run has.

People see accuracies in percent, three digits of everything else, and the paper's count of bits in brackets where it
is another than the true one; CSV holds the raw numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedcomp.reporting.group import RunGroup
from fedcomp.reporting.mean import Mean
from fedcomp.reporting.tables.quantities import (
    BITS,
    DOWNLINK,
    PER_RECEIVER,
    TIMES,
    Column,
    Value,
    quality_columns,
    target_columns,
)
from fedcomp.reporting.tables.rows import Rows
from fedcomp.reporting.tables.target import Target

SEEDS = "seeds"
"""Name of the column that says how many seeds a row has."""
SEEDS_RANK = 9
"""Of its importance, as `Column.rank`."""
CAPTION = (
    "Last evaluation, mean ± sample deviation over seeds; best: each seed's best evaluation. "
    "Uplink, downlink, total, broadcast: bits per parameter, participating client and round; "
    "downlink per receiver: per client that received it, idle ones too"
)
BRACKETS = "; in brackets the paper's count, where it is another"
BOLD = ". Bold: the best mean of a column within a setting, as shown, of methods all of whose seeds have it."


def build(groups: Sequence[RunGroup], target: Target | None = None, paper_counts: bool = True) -> Rows:
    """The table of these groups at each run's last evaluation, without the columns that no run fills.

    Args:
        target: adds what it took to reach it. paper_counts: whether the papers' counts stand beside the true ones.
    """
    runs = [run for one in groups for run in one.runs]
    every = [*quality_columns(runs), *BITS, *(target_columns(target, runs) if target else ()), *TIMES]
    values = {column: [column.of(one) for one in groups] for column in every}
    if not paper_counts:
        values = {column: [replace(value, paper=None) for value in own] for column, own in values.items()}
    columns = [column for column in every if column.reached or _is_informative(column, values)]
    counted = {column for column in columns if any(value.paper for value in values[column])}
    lines = []
    for row, one in enumerate(groups):
        own = {column: values[column][row] for column in columns}
        raw: dict[str, object] = {SEEDS: len(one.runs)}
        for column, value in own.items():
            raw |= _raw(column, value, column in counted)
        cells = [_cell(column, value, one) for column, value in own.items()]
        numbers = [value.mean and value.mean.mean for value in own.values()]
        lines.append(GroupRow(one, cells, numbers, len(one.runs), raw))
    best = [_best(column, values[column], groups) for column in columns]
    return framed(groups, columns, lines, CAPTION + (BRACKETS if counted else "") + BOLD, best)


@dataclass(frozen=True)
class GroupRow:
    """What a table says of a group.

    Attributes:
        group: its setting and method stand first.
        cells: [C] plain text, of C columns. numbers: [C] what they are sorted by; None where that is the text.
        seeds: how many; they stand last.
        raw: the line of the CSV behind setting and method.
    """

    group: RunGroup
    cells: list[str]
    numbers: list[float | None]
    seeds: int
    raw: dict[str, object]


def framed(
    groups: Sequence[RunGroup],
    columns: Sequence[Column],
    lines: Sequence[GroupRow],
    caption: str,
    best: Sequence[set[int]] = (),
) -> Rows:
    """The lines between settings and method, as far as these groups differ in them, and the number of seeds.

    Args:
        best: [C] the rows with the best number of a column; (): none.
    """
    settings = list(dict.fromkeys(key for one in groups for key, _ in one.setting))
    heads = [[*(dict(line.group.setting).get(key, "") for key in settings), line.group.label] for line in lines]
    names, ranks = [*(column.name for column in columns), SEEDS], [*(column.rank for column in columns), SEEDS_RANK]
    by_rank = sorted(range(len(names)), key=lambda place: ranks[place] if place else -1)  # the first quality leads
    return Rows(
        titles=[
            *(key.replace("num_clients", "clients") for key in settings),
            "method",
            *(column.title for column in columns),
            SEEDS,
        ],
        cells=[[*head, *line.cells, str(line.seeds)] for head, line in zip(heads, lines)],
        num_names=len(settings) + 1,
        num_settings=len(settings),
        caption=caption,
        raw=[{**dict(zip([*settings, "method"], head)), **line.raw} for head, line in zip(heads, lines)],
        names=names,
        numbers=[[*line.numbers, line.seeds] for line in lines],
        best=[*(best or [set[int]() for _ in columns]), set()],
        ranked=[names[place] for place in by_rank],
    )


def _is_informative(column: Column, values: dict[Column, list[Value]]) -> bool:
    """Whether some row fills the column; the downlink per receiver also has to differ from that per participant."""
    own = values[column]
    if column is PER_RECEIVER:
        own = [value for value, other in zip(own, values[DOWNLINK]) if value != other]
    return any(value.mean is not None for value in own)


def _cell(column: Column, value: Value, group: RunGroup) -> str:
    """`97.31 ± 0.12`, `1.16 (0.956)`, `34 ± 2 (2 of 3)`, `not reached (0 of 3)`, or a dash for nothing.

    "2 of 3" are the seeds that have the quantity, where not all do.
    """
    num_seeds, mean = column.num_seeds(group), value.mean
    if mean is None:
        return f"not reached (0 of {num_seeds})" if column.reached and num_seeds else "–"
    text = _shown(column, mean)
    if mean.num_seeds < num_seeds:
        text += f" ({mean.num_seeds} of {num_seeds})"
    if value.paper is not None:
        text += f" ({column.show(value.paper.mean)})"
    return text


def _shown(column: Column, mean: Mean) -> str:
    """`97.31 ± 0.12`; `97.31` of a single seed, or where people see the mean alone."""
    if column.show_mean is None or mean.deviation is None:
        return column.show(mean.mean)
    return column.show_mean(mean.mean, mean.deviation)


def _raw(column: Column, value: Value, counted: bool) -> dict[str, object]:
    """A cell in the CSV: `<name>` the mean and `<name>_std` the sample deviation; `seeds_reached` says how many seeds
    reached the target.

    Args:
        counted: add `paper_<name>`, the count of the method's paper, the true one where it is no other.
    """
    mean, paper = value.mean, value.paper or value.mean
    found: dict[str, object] = {column.name: mean and mean.mean, f"{column.name}_std": mean and mean.deviation}
    if counted:
        found[f"paper_{column.name}"] = paper and paper.mean
    if column.name == "rounds_to_target":
        found["seeds_reached"] = 0 if mean is None else mean.num_seeds
    return found


def _best(column: Column, values: Sequence[Value], groups: Sequence[RunGroup]) -> set[int]:
    """The rows with the best mean of their setting, as shown; none where one method stands alone or all are equal.

    A method of which some seed lacks the value wins nothing.
    """
    winners: set[int] = set()
    for setting in dict.fromkeys(one.setting for one in groups):
        own = [row for row, one in enumerate(groups) if one.setting == setting]
        means = {
            row: mean
            for row in own
            if (mean := values[row].mean) and math.isfinite(mean.mean) and mean.num_seeds == len(groups[row].runs)
        }
        if column.better is None or len(own) < 2 or not means:
            continue
        top = (max if column.better == "high" else min)(mean.mean for mean in means.values())
        first = {row for row, mean in means.items() if _shown(column, mean) == _shown(column, replace(mean, mean=top))}
        winners |= first if len(first) < len(own) else set()
    return winners
