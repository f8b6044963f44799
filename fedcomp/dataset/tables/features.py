"""Which columns of a table a model sees, and as which numbers: as they are, or a text as an indicator of each value.

A feature is the name of a column of numbers, or "column=value", which is 1 where the column says so and else 0.
"""

import re
from collections.abc import Sequence

import numpy as np

from fedcomp.core.validate import reads_as_number
from fedcomp.dataset.tables.cells import Cells, is_missing
from fedcomp.dataset.tables.tabular import distinct

AUTO = "auto"
FEWEST_NAMES = 10
"""Different texts from which a column may hold names of rows, if they are also more than a fifth of the rows."""
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ]\S.*)?|\d{1,2}:\d{2}(:\d.*)?"
)
"""2024-01-31, 31.1.2024, 1/31/24, with or without a time, or a time alone."""


def chosen(table: Cells, wanted: Sequence[str] | str | None, target: str, exclude: Sequence[str]) -> list[str]:
    """The features: those of `wanted`, with "column=*" for each value of a column; of None and "auto" all others.

    Args:
        wanted: `dataset.features`: a list, None (every column is one of numbers), or "auto" (text is taken by values).
        target: the column to predict. exclude: columns that None and "auto" leave out.
    Raises:
        ValueError: a column that is unknown or given twice, the target, or for "auto" one of dates or of names.
    """
    if wanted is None or wanted == AUTO:
        others = [column for column in table.columns if column not in (target, *exclude)]
        if not others:
            raise ValueError(f"{table.file} has no column beside '{target}' to predict it from: add one")
        return others if wanted is None else [feature for column in others for feature in _by_itself(table, column)]
    if isinstance(wanted, str) or len(wanted) == 0:
        raise ValueError(f"dataset.features={wanted} must be auto, a list such as [age,bmi,'sex=male'], or null")
    features: list[str] = []
    for feature in map(str, wanted):
        name, _, value = feature.partition("=")
        each = value.strip() == "*" and feature not in table.columns
        features += _values(table, name.strip(), "features") if each else [feature]
    for feature in features:
        if features.count(feature) > 1:
            raise ValueError(f"dataset.features has '{feature}' {features.count(feature)} times: give it once")
        if column_of(table, feature) == target:
            raise ValueError(
                f"dataset.features has '{feature}', but '{target}' is the target: the model would see what it "
                "has to predict; leave it out"
            )
    return features


def column_of(table: Cells, feature: str) -> str:
    """The column that a feature is of; ValueError: there is none."""
    if feature in table.columns:
        return feature
    name, equals, _ = feature.partition("=")
    table.column(name.strip() if equals else feature, "features")
    return name.strip()


def values_of(table: Cells, feature: str, missing: bool) -> np.ndarray:
    """[n] numbers of a column, or the indicator of "column=value".

    Args:
        missing: nan for a missing number, and 0 for a missing text; else ValueError.
    Raises:
        ValueError: a column or value that does not occur, or a cell without a value or number.
    """
    name, equals, value = feature.partition("=")
    if not equals or feature in table.columns:
        return table.numbers(feature, table.column(feature, "features"), missing)
    cells = table.column(name.strip(), "features")
    if value.strip() not in cells:
        raise ValueError(
            f"dataset.features has '{feature}', but column '{name}' holds: {', '.join(distinct(cells)[:8])}"
        )
    if not (missing or is_missing(value.strip())):
        table.refuse_missing(name.strip(), "dataset.features")
    return np.array([cell == value.strip() for cell in cells], np.float64)


def _by_itself(table: Cells, name: str) -> list[str]:
    """The features of a column under "auto"."""
    cells = [cell for cell in table.columns[name] if not is_missing(cell)]
    leave_out = f"leave it out: 'dataset.exclude=[{name}]'"
    if not cells:
        raise ValueError(f"{table.file}: column '{name}' has no value in any row; {leave_out}")
    if all(map(reads_as_number, cells)):
        return [name]
    if all(map(DATE.fullmatch, cells)):
        raise ValueError(
            f"{table.file}: column '{name}' holds dates such as '{cells[0]}', of which dataset.features=auto makes no "
            f"number: write the one that matters (a year, days since a day) into the file, or {leave_out}"
        )
    found = distinct(cells)
    if len(found) > max(FEWEST_NAMES, len(cells) // 5):
        odd = next((cell for cell in cells if not reads_as_number(cell)), cells[0])
        raise ValueError(
            f"{table.file}: column '{name}' holds {len(found)} different texts in {len(cells)} rows, such as '{odd}': "
            f"no categories but names, or numbers with an error among them; {leave_out}, or give dataset.features "
            f"as a list, with '{name}=*' if each is a category"
        )
    return _values(table, name, "features")


def _values(table: Cells, name: str, argument: str) -> list[str]:
    """A feature for each value of a column, but for missing ones."""
    return [f"{name}={cell}" for cell in distinct(table.column(name, argument)) if not is_missing(cell)]
