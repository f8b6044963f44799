"""Every method's difference to one of them, over the seeds that both have: `--against fedavg`.

Runs of one seed share data split, first model and cohorts, so that differences of pairs vary less than the runs do.
"""

import math
from collections.abc import Sequence

from fedcomp.reporting.group import RunGroup, by_setting
from fedcomp.reporting.mean import mean_over_seeds
from fedcomp.reporting.tables.quantities import Column, quality_columns
from fedcomp.reporting.tables.rows import Rows
from fedcomp.reporting.tables.table import SEEDS, GroupRow, framed

LEVEL = 0.95


def rows(groups: Sequence[RunGroup], reference: str) -> Rows:
    """A row for each other method of a setting that has the reference, with the columns of quality.

    Args:
        reference: label of the method that all others are compared with.
    Raises:
        ValueError: there is no other.
    """
    columns = list(quality_columns([run for one in groups for run in one.runs]))
    lines = []
    for own in by_setting(groups).values():
        for base, one in ((base, one) for base in own if base.label == reference for one in own if one is not base):
            found = [_difference(column, one, base) for column in columns]
            seeds = len(_pairs(one, base))
            raw: dict[str, object] = {}
            for column, (_, values) in zip(columns, found):
                raw |= {f"{column.name}{end}": value for end, value in zip(("_difference", "_low", "_high"), values)}
            cells, numbers = [shown for shown, _ in found], [values[0] for _, values in found]
            lines.append(GroupRow(one, cells, numbers, seeds, raw | {SEEDS: seeds}))
    if not lines:
        raise ValueError(f"--against {reference}: there is no other method in its settings to compare with it")
    caption = (
        f"Difference to {reference}: mean over the seeds that both have of (method - {reference}), in brackets its "
        f"{LEVEL:.0%} interval by Student's t with n - 1 degrees of freedom. An interval without 0 says that seeds "
        "alone hardly explain the difference; of many comparisons some do so by chance. One seed has no interval."
    )
    return framed(groups, columns, lines, caption)


def interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """mean -+ t s / sqrt(n), t the (1 + LEVEL) / 2 quantile of Student's distribution with n - 1 degrees of freedom.

    None for a single difference.
    """
    found = mean_over_seeds(differences)
    if found.deviation is None:
        return None
    from scipy.special import stdtrit  # takes 0.1 s

    half = float(stdtrit(found.num_seeds - 1, (1 + LEVEL) / 2)) * found.deviation / math.sqrt(found.num_seeds)
    return found.mean - half, found.mean + half


def _pairs(one: RunGroup, base: RunGroup) -> list[tuple]:
    """The runs of both with the same seed."""
    others = {run.seed: run for run in base.runs if run.seed is not None}
    return [(run, others[run.seed]) for run in one.runs if run.seed in others]


def _difference(column: Column, one: RunGroup, base: RunGroup) -> tuple[str, tuple[float | None, ...]]:
    """`+1.32 [+0.90, +1.74]`, and the three numbers; None where there are none, `nan` alone where a run has that.

    `+1.32 (1 of 2)`: one of two pairs has the quantity.
    """
    values = [(column.value(run), column.value(other)) for run, other in _pairs(one, base)]
    differences = [value - other for value, other in values if value is not None and other is not None]
    if not differences:
        return "–", (None, None, None)
    mean = mean_over_seeds(differences).mean
    ends = interval(differences)
    some = f" ({len(differences)} of {len(values)})" if len(differences) < len(values) else ""
    if not math.isfinite(mean):
        return column.show(mean) + some, (mean, None, None)
    text = _signed(column, mean)
    if ends is None:
        return text + some, (mean, None, None)
    return f"{text} [{_signed(column, ends[0])}, {_signed(column, ends[1])}]{some}", (mean, *ends)


def _signed(column: Column, value: float) -> str:
    """As the column shows numbers, with a sign."""
    return f"{'+' if value >= 0 else '-'}{column.show(abs(value))}"
