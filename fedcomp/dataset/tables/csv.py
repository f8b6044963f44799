"""Rows of a CSV file with a header: regression or classification on any table.

`dataset=insurance` is a setting of it: the FedAvg-SVRG paper's "real medical insurance data" of 900 persons and 5
features. The paper does not say which; the first 900 rows of the public "Medical Cost" table with age, sex=male, bmi,
children and smoker=yes, all min-max scaled, have the optimal cost 0.009199, which the paper prints as 0.01.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from fedcomp.core.validate import by_similarity, check_choice, check_count, reads_as_number, suggest
from fedcomp.dataset.fetch import below

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset, Task
    from fedcomp.dataset.tables.tabular import Scaling

Column = list[str]

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
"""Words for characters that are awkward on a command line."""
DETECTED = ("comma", "semicolon", "tab", "pipe")
"""Delimiters that `auto` looks for."""
DETECTION_LINES = 100
"""How many of a file's first lines `auto` reads."""


def load(
    path: str | None,
    target: str | None,
    features: Sequence[str] | None = None,
    root: str = ".",
    rows: int | None = None,
    task: Task = "regression",
    test_fraction: float = 0.2,
    split_seed: int = 0,
    scaling: Scaling = "min_max",
    target_scaling: Scaling = "min_max",
    name: str = "csv",
    delimiter: str = ",",
    many_classes: bool = False,
    owner: str | None = None,
) -> Dataset:
    """The named columns of `root/path`.

    Args:
        path: the file; its first line names the columns.
        target: the column to predict: a number, or for classification any value, classes being its values in order.
        features: columns to predict it from, "bmi" for a number and "sex=male" for 1 where column sex says male, else
            0; None for every other column, each of which must then hold numbers.
        root: the folder that a relative `path` starts from; `~` is expanded.
        rows: only the first so many; None for all.
        task: as in `tabular_dataset`.
        test_fraction: as in `tabular_dataset`; with 0 the test set is the training set.
        split_seed: as in `tabular_dataset`.
        scaling: as in `tabular_dataset`.
        target_scaling: as in `tabular_dataset`.
        name: what the run calls the dataset.
        delimiter: between cells: a character, comma, semicolon, tab, pipe, space, or auto, which looks at the file.
        owner: the column that names who each row comes from, for `partition=natural`; no feature unless `features` has
            it. None: not known.
        many_classes: to classify with more classes than a fifth of the rows, which is else taken for an error.
    Raises:
        ValueError: a missing file or column, a cell that is no finite number (with its line), the target among the
            features, a target that names no classes, or an argument out of range.
    """
    from fedcomp.dataset.contract import Task
    from fedcomp.dataset.tables.tabular import classes_of, tabular_dataset

    if path is None or target is None:
        missing = "path" if path is None else "target"
        example = "mine.csv" if path is None else "price"
        raise ValueError(f"dataset={name} needs dataset.{missing}, for instance dataset.{missing}={example}")
    check_choice("dataset.task", task, get_args(Task))
    file = below(root, path)[0]
    table = _Table.read(file, rows, delimiter)
    cells = table.column(target, "target")
    owners = None if owner is None else table.owners(owner)
    others = [column for column in table.columns if column not in (target, owner)]
    wanted = others if features is None else _names(features)
    if not wanted:
        raise ValueError(f"{file} has no column beside '{target}' to predict it from: add one")
    for feature in wanted:
        if wanted.count(feature) > 1:
            raise ValueError(f"dataset.features has '{feature}' {wanted.count(feature)} times: give it once")
        if feature == target or (feature not in table.columns and feature.partition("=")[0].strip() == target):
            raise ValueError(
                f"dataset.features has '{feature}', but '{target}' is the target: the model would see what it "
                "has to predict; leave it out"
            )
    class_names: list[str] = []
    if task == "classification":
        class_names = classes_of(target, cells, table.places(target), many_classes)
        numbers = {cell: number for number, cell in enumerate(class_names)}
        values = np.array([numbers[cell] for cell in cells], np.float64)
    else:
        values = table.target_numbers(target, cells)
    inputs = np.stack([table.feature(feature) for feature in wanted], axis=1)
    return tabular_dataset(
        name, inputs, values, wanted, task, class_names, test_fraction, split_seed, scaling, target_scaling, owners
    )


def data_files(path: str | None, root: str = ".", **_: object) -> list[Path]:
    """What `load` reads."""
    return [] if path is None else below(root, path)


def _names(features: Sequence[str]) -> list[str]:
    if isinstance(features, str) or len(features) == 0:
        raise ValueError(f"dataset.features={features} must be a list such as [age,bmi,'sex=male'], or null")
    return [str(feature) for feature in features]


@dataclass(frozen=True)
class _Table:
    """A file's cells, without outer blanks.

    Attributes:
        columns: {name: its cells}. lines: where each row stands in the file.
    """

    file: Path
    columns: dict[str, Column]
    lines: list[int]

    @classmethod
    def read(cls, file: Path, rows: int | None, delimiter: str) -> _Table:
        """The first `rows` rows; blank lines are none."""
        check_count("dataset.rows", rows, meaning="null for all rows", or_null=True)
        if not file.is_file():
            raise ValueError(f"no CSV file at {file}: put it there, or set dataset.path")
        separator = _character(delimiter, file)
        try:
            with file.open(newline="", encoding="utf-8-sig") as content:
                reader = csv.reader(content, delimiter=separator)
                table = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if line]
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{file} is no CSV file in UTF-8 ({error}): save it as one") from None
        if len(table) < 2:
            raise ValueError(f"{file} has no rows: it needs a line of column names, then one line a sample")
        header, body = table[0][1], table[1:]
        other = _detect(file) if len(header) == 1 else None
        if other is not None:
            raise ValueError(
                f"{file} has one column with dataset.delimiter={delimiter!r}, but looks separated by {other}s: give "
                f"dataset.delimiter={other}, or dataset.delimiter=auto, which finds it by itself"
            )
        if len(set(header)) < len(header):
            raise ValueError(f"{file} names a column twice: {', '.join(header)}; each needs its own name")
        if rows is not None and rows > len(body):
            raise ValueError(f"dataset.rows is {rows}, but {file} has only {len(body)} rows")
        for line, cells in body[:rows]:
            if len(cells) != len(header):
                raise ValueError(f"{file}, line {line}: {len(cells)} cells, but the header names {len(header)} columns")
        columns = {name: [cells[place] for _, cells in body[:rows]] for place, name in enumerate(header)}
        return cls(file, columns, [line for line, _ in body[:rows]])

    def column(self, name: str, argument: str) -> Column:
        """The cells of the column that `dataset.<argument>` names."""
        if name not in self.columns:
            raise ValueError(
                f"dataset.{argument} names column '{name}', but {self.file} has none of that name"
                f"{suggest(name, self.columns)}"
            )
        return self.columns[name]

    def places(self, name: str) -> list[str]:
        """[n] where each cell of column `name` stands, to open an error with."""
        return [f"{self.file}, line {line}, column '{name}'" for line in self.lines]

    def feature(self, feature: str) -> np.ndarray:
        """[n] numbers of a column, or the indicator of "column=value"."""
        from fedcomp.dataset.tables.tabular import distinct

        name, equals, value = feature.partition("=")
        if not equals or feature in self.columns:
            return self.numbers(feature, self.column(feature, "features"))
        cells = self.column(name.strip(), "features")
        if value.strip() not in cells:
            raise ValueError(
                f"dataset.features has '{feature}', but column '{name}' holds: {', '.join(distinct(cells)[:8])}"
            )
        return np.array([cell == value.strip() for cell in cells], np.float64)

    def owners(self, name: str) -> np.ndarray:
        """[n] the number of each row's owner, in the order of the distinct cells of column `name`."""
        from fedcomp.dataset.tables.tabular import distinct, is_missing

        cells = self.column(name, "owner")
        for place, cell in zip(self.places(name), cells):
            if is_missing(cell):
                raise ValueError(f"{place} (dataset.owner) names no owner: repair or drop that row")
        numbers = {cell: number for number, cell in enumerate(distinct(cells))}
        return np.array([numbers[cell] for cell in cells], np.int64)

    def target_numbers(self, name: str, cells: Column) -> np.ndarray:
        """[n] the cells of the column to predict as numbers."""
        for line, cell in zip(self.lines, cells):
            if not reads_as_number(cell):
                numeric = [other for other, own in self.columns.items() if all(map(reads_as_number, own))]
                there = f" (columns of numbers: {', '.join(by_similarity(name, numeric))})" if numeric else ""
                raise ValueError(
                    f"{self.file}, line {line}, column '{name}' (dataset.target): '{cell}' is no number"
                    f"{_decimals(cell)}, which dataset.task=regression predicts: repair it, take "
                    f"dataset.task=classification, or another column{there}"
                )
        return self.numbers(name, cells)

    def numbers(self, name: str, cells: Column) -> np.ndarray:
        """[n] the cells of column `name` as numbers."""
        numbers = np.empty(len(cells))
        for row, cell in enumerate(cells):
            where = f"{self.file}, line {self.lines[row]}, column '{name}'"
            try:
                numbers[row] = float(cell)
            except ValueError:
                raise ValueError(
                    f"{where}: '{cell}' is no number{_decimals(cell)}; repair it, leave the column out of "
                    f"dataset.features, or take it there as a category: '{name}={cell or 'VALUE'}'"
                ) from None
            if not math.isfinite(numbers[row]):
                raise ValueError(f"{where}: {cell} is not finite; repair or drop that row")
        return numbers


def _decimals(cell: str) -> str:
    """A hint for numbers such as 3,14, which are no error of a single cell."""
    return " (decimals need a point, not a comma)" if reads_as_number(cell.replace(",", ".")) else ""


def _character(delimiter: str, file: Path) -> str:
    """The character that `dataset.delimiter` means for this file.

    Raises:
        ValueError: it is neither one character, nor a name, nor auto; or auto finds none.
    """
    if delimiter == "auto":
        found = _detect(file)
        if found is None:
            raise ValueError(
                f"dataset.delimiter=auto finds no delimiter in {file}: none of {', '.join(DETECTED)} gives every line "
                "as many cells as the header has; repair the file, or name its delimiter"
            )
        return DELIMITERS[found]
    separator = DELIMITERS.get(delimiter, delimiter) if isinstance(delimiter, str) else ""
    if len(separator) != 1 or separator in '"\r\n':
        raise ValueError(
            f"dataset.delimiter={delimiter} must be auto, one of {', '.join(DELIMITERS)}, or one character other "
            "than a quotation mark, in quotes on a command line: 'dataset.delimiter=\":\"'"
        )
    return separator


def _detect(file: Path) -> str | None:
    """The name of the delimiter that gives the file's first lines the most cells, in all lines as many; None: none.

    Lines of one cell each have no delimiter.
    """
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as content:
        lines = list(itertools.islice(content, DETECTION_LINES))
    widths = {name: _width(lines, DELIMITERS[name]) for name in DETECTED}
    best = max(DETECTED, key=lambda name: widths[name])
    return best if widths[best] > 1 else None


def _width(lines: list[str], separator: str) -> int:
    """Cells a line; 0 if lines differ."""
    try:
        found = {len(cells) for cells in csv.reader(lines, delimiter=separator) if cells}
    except csv.Error:
        return 0
    return found.pop() if len(found) == 1 else 0
