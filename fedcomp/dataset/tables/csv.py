"""Rows of a table with named columns, CSV or Parquet: regression or classification on any table.

`dataset=insurance` is a setting of it: the FedAvg-SVRG paper's "real medical insurance data" of 900 persons and 5
features. The paper does not say which; the first 900 rows of the public "Medical Cost" table with age, sex=male, bmi,
children and smoker=yes, all min-max scaled, have the optimal cost 0.009199, which the paper prints as 0.01.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import numpy as np

from fedcomp.core.ranges import Whole, checked
from fedcomp.core.validate import by_similarity, check_choice, reads_as_number
from fedcomp.dataset.fetch import below

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset, Task
    from fedcomp.dataset.tables.cells import Cells
    from fedcomp.dataset.tables.tabular import Scaling

Missing = Literal["refuse", "drop", "impute"]

log = logging.getLogger("fedcomp")


@checked("dataset.")
def load(
    path: str | None,
    target: str | None,
    features: Sequence[str] | str | None = None,
    root: str = ".",
    rows: Annotated[int | None, Whole(meaning="null for all rows")] = None,
    task: Task = "regression",
    test_fraction: float = 0.2,
    split_seed: int = 0,
    scaling: Scaling = "min_max",
    target_scaling: Scaling = "min_max",
    name: str = "csv",
    delimiter: str = ",",
    many_classes: bool = False,
    owner: str | None = None,
    missing: Missing = "refuse",
    exclude: Sequence[str] = (),
) -> Dataset:
    """The named columns of `root/path`.

    Args:
        path: the file: `.csv`, `.csv.gz`, whose first line names the columns, or `.parquet`, if pyarrow is installed.
        target: a number, or for classification any value, classes being its values in order.
        features: columns to predict it from, "bmi" for a number, "sex=male" for 1 where column sex says male, else 0,
            and "sex=*" for such an indicator of each of its values; None for every other column, each of which must
            then hold numbers; "auto" for every other column, text as an indicator of each value, dates refused.
        owner: the column that names who each row comes from; no feature unless `features` has it.
        missing: of cells without a value (empty, NA, null, nan, ?): refuse them; drop their rows; or impute: a number
            is the mean of the training rows, a text is none of the values (all its indicators are 0), and rows without
            target or owner are dropped. The log says how many.
    Raises:
        ValueError: a missing file or column, a cell that is no finite number (with its line), the target among the
            features, a target that names no classes, or an argument out of range.
    """
    from fedcomp.dataset.contract import Task
    from fedcomp.dataset.tables.cells import Cells

    if path is None or target is None:
        lacking = "path" if path is None else "target"
        example = "mine.csv" if path is None else "price"
        raise ValueError(f"dataset={name} needs dataset.{lacking}, for instance dataset.{lacking}={example}")
    check_choice("dataset.task", task, get_args(Task))
    cells = Cells.read(below(root, path)[0], rows, delimiter)
    split = (test_fraction, split_seed, scaling, target_scaling)
    return from_cells(cells, name, target, features, task, split, many_classes, owner, missing, exclude)


def from_cells(
    table: Cells,
    name: str,
    target: str,
    features: Sequence[str] | str | None,
    task: Task,
    split: tuple[float, int, Scaling, Scaling],
    many_classes: bool,
    owner: str | None,
    missing: Missing,
    exclude: Sequence[str],
) -> Dataset:
    """As `load`, of a table that is read; `split`: its arguments test_fraction, split_seed, scaling, target_scaling."""
    from fedcomp.dataset.tables.features import AUTO, chosen, column_of, values_of
    from fedcomp.dataset.tables.tabular import classes_of, tabular_dataset

    table.column(target, "target")
    if owner is not None:
        table.column(owner, "owner")
    needed = [target] if owner is None else [target, owner]
    left_out = [*_excluded(table, exclude, features), *needed[1:]]
    wanted = chosen(table, features, target, left_out)
    if missing != "refuse":
        inside = list(dict.fromkeys(column_of(table, feature) for feature in wanted))
        table = _without_missing(table, needed, inside, missing)
        wanted = chosen(table, features, target, left_out)  # of the values that are left
    cells = table.columns[target]
    class_names: list[str] = []
    if task == "classification":
        class_names = classes_of(target, cells, table.places(target), many_classes)
        numbers = {cell: number for number, cell in enumerate(class_names)}
        values = np.array([numbers[cell] for cell in cells], np.float64)
    else:
        values = _target_numbers(table, target)
    inputs = np.stack([values_of(table, feature, missing == "impute") for feature in wanted], axis=1)
    owners = None if owner is None else _owners(table, owner)
    return tabular_dataset(
        name,
        inputs,
        values,
        wanted,
        task,
        class_names,
        *split,
        owners,
        "zero" if features == AUTO else "refused",
        table.held_out,
    )


def data_files(path: str | None, root: str = ".", **_: object) -> list[Path]:
    """What `load` reads."""
    return [] if path is None else below(root, path)


def _excluded(table: Cells, exclude: Sequence[str], features: Sequence[str] | str | None) -> list[str]:
    """`dataset.exclude`, columns that the table has."""
    if isinstance(exclude, str):
        raise ValueError(f"dataset.exclude={exclude} must be a list such as [{exclude or 'id'}]")
    if len(exclude) and not isinstance(features, str) and features is not None:
        raise ValueError(
            f"dataset.exclude={list(exclude)} is for dataset.features=auto or null; a list of features names all that "
            "a model sees: leave dataset.exclude out"
        )
    for column in exclude:
        table.column(str(column), "exclude")
    return [str(column) for column in exclude]


def _without_missing(table: Cells, needed: list[str], inside: list[str], missing: Missing) -> Cells:
    """The table without the rows that lack what they need; the log says what becomes of missing values.

    Args:
        needed: target and owner. inside: the columns of the features.
    """
    from fedcomp.dataset.tables.cells import is_missing

    kept = table.complete(needed if missing == "impute" else [*needed, *inside])
    said = []
    if len(kept.lines) < len(table.lines):
        lack = "without a target or owner" if missing == "impute" else "with a missing value"
        said.append(f"{len(table.lines) - len(kept.lines)} of {len(table.lines)} rows {lack} are left out")
    counts = {column: sum(map(is_missing, kept.columns[column])) for column in inside}
    lacking = ", ".join(f"{column} ({count})" for column, count in counts.items() if count)
    if lacking:
        said.append(f"missing values of {lacking} are the training rows' mean, or of a text none of its categories")
    if said:
        log.info("%s: %s (dataset.missing=%s)", table.file.name, "; ".join(said), missing, extra={"note": True})
    return kept


def _owners(table: Cells, name: str) -> np.ndarray:
    """[n] the number of each row's owner, in the order of the distinct cells of column `name`."""
    from fedcomp.dataset.tables.tabular import distinct

    table.refuse_missing(name, "dataset.owner")
    numbers = {cell: number for number, cell in enumerate(distinct(table.columns[name]))}
    return np.array([numbers[cell] for cell in table.columns[name]], np.int64)


def _target_numbers(table: Cells, name: str) -> np.ndarray:
    """[n] the cells of the column to predict as numbers."""
    from fedcomp.dataset.tables.cells import decimals, is_missing

    cells = table.columns[name]
    for place, cell in zip(table.places(name), cells):
        if not reads_as_number(cell):
            numeric = [other for other, own in table.columns.items() if all(map(reads_as_number, own))]
            there = f" (columns of numbers: {', '.join(by_similarity(name, numeric))})" if numeric else ""
            raise ValueError(
                f"{place} (dataset.target): '{cell}' is no number{decimals(cell)}, which dataset.task=regression "
                f"predicts: repair it{', take dataset.missing=drop' * is_missing(cell)}, take "
                f"dataset.task=classification, or another column{there}"
            )
    return table.numbers(name, cells)
