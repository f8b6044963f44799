"""The rows of a file of texts, with their places: JSON Lines, CSV, Parquet, or a folder that `datasets` has saved."""

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcomp.core.first_line import first_line
from fedcomp.core.validate import suggest
from fedcomp.dataset.saved import load_parquet, load_saved

KINDS = ".jsonl, .csv, .parquet (the first two also as .gz), or a folder that save_to_disk of datasets wrote"


@dataclass(frozen=True)
class Row:
    """A row of a file, its values by name; `place`: where it stands, such as "texts.jsonl, line 3"."""

    place: str
    fields: Mapping[str, Any]

    def text(self, field: str, argument: str) -> str:
        """A field as text. ValueError, with its place: it is missing, has no value, or is no text or number.

        Args:
            argument: the option that names the field.
        """
        if field not in self.fields:
            there = suggest(field, self.fields)
            raise ValueError(f"{self.place} has no field '{field}' (dataset.{argument}){there}")
        value = self.fields[field]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            shown = repr(value)[:40]
            raise ValueError(
                f"{self.place}: field '{field}' (dataset.{argument}) is {shown}, but must be a text: repair or drop it"
            )
        return str(value)


def files(path: Path) -> list[Path]:
    """What `read` reads."""
    return sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]


def read(path: Path, split: str = "train") -> list[Row]:
    """All rows, of a folder with several splits those of `split`.

    Raises ValueError: a path that does not exist or is of no such kind, or a damaged line, with its place.
    """
    if path.is_dir():
        rows = _saved(path, split)
    elif not path.is_file():
        raise ValueError(f"no file {path}: put it there, or set dataset.path or dataset.root")
    else:
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        reader = READERS.get(plain.suffix)
        if reader is None:
            raise ValueError(f"{path} is of no kind that dataset=text reads: {KINDS}")
        rows = list(reader(path))
    if not rows:
        raise ValueError(f"{path} has no rows")
    return rows


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of a text in UTF-8, line by line; ValueError names the line that is none."""
    number = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as content:
            for number, line in enumerate(content, 1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}, line {number}: no text in UTF-8 ({error.reason}): repair or drop it") from None
    except (OSError, EOFError) as error:
        raise ValueError(f"{file}, after line {number}: damaged ({first_line(error)})") from None


def _jsonl(file: Path) -> Iterator[Row]:
    for number, line in _lines(file):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{place}: no JSON ({first_line(error)}): repair or drop it") from None
        if not isinstance(fields, dict):
            raise ValueError(f"{place}: {line.strip()[:40]} is no JSON object {{...}}: repair or drop it")
        yield Row(place, fields)


def _csv(file: Path) -> Iterator[Row]:
    """Rows of a CSV with a header; a cell may hold line ends in quotes, and a row is named by its last line."""
    reader = csv.reader((line for _, line in _lines(file)), strict=True)
    header: list[str] = []
    try:
        for cells in reader:
            place = f"{file}, line {reader.line_num}"
            if not cells:
                continue
            if not header:
                header = cells
                if len(set(header)) < len(header):
                    raise ValueError(f"{place} names a field twice: {', '.join(header)}; each needs its own name")
            elif len(cells) != len(header):
                raise ValueError(f"{place}: {len(cells)} cells, but the header names {len(header)}: repair or drop it")
            else:
                yield Row(place, dict(zip(header, cells)))
    except csv.Error as error:
        raise ValueError(f"{file}, line {reader.line_num}: no CSV ({error}): repair or drop it") from None


def _parquet(file: Path) -> Iterator[Row]:
    rows = load_parquet(file, "it as .jsonl").to_pylist()
    return (Row(f"{file}, row {number}", fields) for number, fields in enumerate(rows, 1))


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}


def _saved(folder: Path, split: str) -> list[Row]:
    """Rows of a folder that `datasets` has saved; classes by their names, None where a row has none."""
    saved = load_saved(folder)
    if not hasattr(saved, "features"):
        if split not in saved:
            raise ValueError(f"{split} is no split of {folder} (there are: {', '.join(saved)})")
        saved = saved[split]
    names = {name: feature.names for name, feature in saved.features.items() if hasattr(feature, "names")}
    rows = []
    for number, fields in enumerate(saved):
        classes = {name: fields[name] for name in names}
        named = {name: None if of is None or of < 0 else names[name][of] for name, of in classes.items()}
        rows.append(Row(f"{folder}, row {number} of {split}", fields | named))
    return rows
