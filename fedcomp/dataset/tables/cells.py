"""A file's cells as text: CSV, also compressed (`.csv.gz`), and Parquet where pyarrow is installed."""

import csv
import gzip
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, cast

import numpy as np

from fedcomp.core.validate import reads_as_number, suggest
from fedcomp.dataset.saved import load_parquet

Column = list[str]

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
"""Words for characters that are awkward on a command line."""
DETECTED = ("comma", "semicolon", "tab", "pipe")
"""Delimiters that `auto` looks for."""
DETECTION_LINES = 100
"""How many of a file's first lines `auto` reads."""
MISSING = ("", "na", "n/a", "#n/a", "<na>", "null", "?")
"""Cells that stand for a missing value, beside `nan` in any spelling."""


@dataclass(frozen=True)
class Cells:
    """A file's cells, without outer blanks.

    Attributes:
        columns: {name: its cells}. lines: where each row stands in the file, such as "line 3".
        held_out: whether each row is of a test set that comes with the data; None: there is none.
    """

    file: Path
    columns: dict[str, Column]
    lines: list[str]
    held_out: list[bool] | None = None

    @classmethod
    def read(cls, file: Path, rows: int | None, delimiter: str) -> "Cells":
        """The first `rows` rows; blank lines are none."""
        if not file.is_file():
            raise ValueError(f"no CSV file at {file}: put it there, or set dataset.path")
        header, body, lines = _parquet(file) if file.suffix == ".parquet" else _csv(file, delimiter)
        twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
        if twice:
            raise ValueError(f"{file} names a column twice: {', '.join(twice)}; each needs its own name")
        if rows is not None and rows > len(body):
            raise ValueError(f"dataset.rows is {rows}, but {file} has only {len(body)} rows")
        for line, cells in zip(lines[:rows], body):
            if len(cells) != len(header):
                raise ValueError(f"{file}, {line}: {len(cells)} cells, but the header names {len(header)} columns")
        columns = {name: [cells[place] for cells in body[:rows]] for place, name in enumerate(header)}
        return cls(file, columns, lines[:rows])

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
        return [f"{self.file}, {line}, column '{name}'" for line in self.lines]

    def complete(self, names: Sequence[str]) -> "Cells":
        """The rows that have a value in each of these columns. Raises ValueError: no row has."""
        used = [self.columns[name] for name in names]
        kept = [row for row, cells in enumerate(zip(*used)) if not any(map(is_missing, cells))]
        if not kept:
            raise ValueError(
                f"{self.file} has no row with a value in each of {', '.join(names)}: leave out a column that is empty, "
                "or take dataset.missing=impute"
            )
        columns = {name: [cells[row] for row in kept] for name, cells in self.columns.items()}
        held_out = None if self.held_out is None else [self.held_out[row] for row in kept]
        return replace(self, columns=columns, lines=[self.lines[row] for row in kept], held_out=held_out)

    def refuse_missing(self, name: str, argument: str) -> None:
        """Raise ValueError, with its place, for a cell of column `name` without a value."""
        for place, cell in zip(self.places(name), self.columns[name]):
            if is_missing(cell):
                what = "no owner" if argument == "dataset.owner" else f"no value ({cell!r})"
                ways = "drop" if argument == "dataset.owner" else "drop or impute"
                raise ValueError(f"{place} ({argument}) names {what}: repair that row, or take dataset.missing={ways}")

    def numbers(self, name: str, cells: Column, missing: bool = False) -> np.ndarray:
        """[n] the cells of column `name` as numbers; with `missing` nan where there is none, which is else refused."""
        numbers = np.empty(len(cells))
        for row, cell in enumerate(cells):
            if missing and is_missing(cell):
                numbers[row] = math.nan
                continue
            where = f"{self.file}, {self.lines[row]}, column '{name}'"
            try:
                numbers[row] = float(cell)
            except ValueError:
                if is_missing(cell):
                    raise ValueError(
                        f"{where}: {cell!r} is no number; repair it, or take dataset.missing=drop or impute"
                    ) from None
                raise ValueError(
                    f"{where}: '{cell}' is no number{decimals(cell)}; repair it, leave the column out of "
                    f"dataset.features, take it there as a category, '{name}={cell}' (or '{name}=*' for each of its "
                    "values), or take dataset.features=auto"
                ) from None
            if not math.isfinite(numbers[row]):
                way_out = ", or take dataset.missing=drop or impute" if math.isnan(numbers[row]) else ""
                raise ValueError(f"{where}: {cell} is not finite; repair or drop that row{way_out}")
        return numbers


def is_missing(cell: str) -> bool:
    """Whether a cell stands for a missing value."""
    try:
        return math.isnan(float(cell))
    except ValueError:
        return cell.lower() in MISSING


def decimals(cell: str) -> str:
    """A hint for numbers such as 3,14, which are no error of a single cell."""
    return " (decimals need a point, not a comma)" if reads_as_number(cell.replace(",", ".")) else ""


def _csv(file: Path, delimiter: str) -> tuple[list[str], list[list[str]], list[str]]:
    """The column names, the rows, and the line that each row ends in."""
    separator = _character(delimiter, file)
    try:
        with _open(file) as content:
            reader = csv.reader(content, delimiter=separator)
            table = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if line]
    except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{file} is no CSV file in UTF-8 ({error}): save it as one") from None
    if len(table) < 2:
        raise ValueError(f"{file} has no rows: it needs a line of column names, then one line a sample")
    header = table[0][1]
    other = _detect(file) if len(header) == 1 else None
    if other is not None:
        raise ValueError(
            f"{file} has one column with dataset.delimiter={delimiter!r}, but looks separated by {other}s: give "
            f"dataset.delimiter={other}, or dataset.delimiter=auto, which finds it by itself"
        )
    return header, [cells for _, cells in table[1:]], [f"line {line}" for line, _ in table[1:]]


def _parquet(file: Path) -> tuple[list[str], list[list[str]], list[str]]:
    """As `_csv`: cells as pyarrow writes them as text, "" where there is no value."""
    table = load_parquet(file, "the table as .csv or .csv.gz")
    import pyarrow

    columns: list[Column] = []
    for name, column in zip(table.column_names, table.columns):
        try:
            texts = column.cast(pyarrow.string()).to_pylist()
        except (pyarrow.ArrowException, ValueError):
            raise ValueError(
                f"{file}: column '{name}' holds {column.type}, but must hold numbers or text: save the table without it"
            ) from None
        columns.append(["" if text is None else text.strip() for text in texts])
    if not table.num_rows:
        raise ValueError(f"{file} has no rows")
    body = [list(cells) for cells in zip(*columns)]
    return list(table.column_names), body, [f"row {row}" for row in range(1, len(body) + 1)]


def _open(file: Path, errors: str = "strict") -> TextIO:
    """The file's text, with lines as they end in it; `errors`: what becomes of bytes that are none."""
    if file.suffix == ".gz":
        return cast(TextIO, gzip.open(file, "rt", newline="", encoding="utf-8-sig", errors=errors))
    return file.open(newline="", encoding="utf-8-sig", errors=errors)


def _character(delimiter: str, file: Path) -> str:
    """The character that `dataset.delimiter` means for this file.

    Raises ValueError: it is neither one character, nor a name, nor auto; or auto finds none.
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
    try:
        with _open(file, errors="replace") as content:
            lines = list(itertools.islice(content, DETECTION_LINES))
    except (EOFError, gzip.BadGzipFile):  # which reading the whole file reports
        return None
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
