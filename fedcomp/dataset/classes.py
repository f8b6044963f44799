"""The classes that a table's target names: its distinct values, if they are classes at all."""

from __future__ import annotations

import math
from collections.abc import Sequence

MISSING = ("", "na", "n/a", "#n/a", "<na>", "null")
"""What programs write into cells that have no value; beside `nan` in all its spellings."""
FEWEST_EACH = 5
"""Rows of a class on average, below which its column is taken for a quantity or a name."""


def classes_of(target: str, cells: Sequence[str], places: Sequence[str], many: bool) -> list[str]:
    """The distinct values in order, after a look at whether they can be classes.

    Args:
        target: the column. cells: [n] its values. places: [n] where each stands, to open an error.
        many: whether there may be more classes than a fifth of the rows.
    Raises:
        ValueError: a cell without a value, or so many values that they are none of classes.
    """
    for place, cell in zip(places, cells):
        if _is_missing(cell):
            said = f"'{cell}', which stands for no value" if cell else "empty"
            raise ValueError(f"{place}: the label is {said}; repair or drop that row, or give the class another name")
    found = distinct(cells)
    if len(found) * FEWEST_EACH > len(cells) and not many:
        raise ValueError(
            f"dataset.target={target} has {len(found)} different values in {len(cells)} rows, too many for classes (at "
            "most a fifth): take dataset.task=regression or another column, or dataset.many_classes=true if each is "
            "a class"
        )
    return found


def distinct(cells: Sequence[str]) -> list[str]:
    """The distinct values in order: as numbers where all are, else as text."""
    found = sorted(set(cells))
    try:
        return sorted(found, key=float)
    except ValueError:
        return found


def _is_missing(cell: str) -> bool:
    try:
        return math.isnan(float(cell))
    except ValueError:
        return cell.lower() in MISSING
