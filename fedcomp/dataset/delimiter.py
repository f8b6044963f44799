"""Which character separates the cells of a CSV file."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
"""Words for characters that are awkward on a command line."""
TRIED = ("comma", "semicolon", "tab", "pipe")
LINES = 100
"""A file's first lines, by which its delimiter is found."""


def character(delimiter: str, file: Path) -> str:
    """The character that `dataset.delimiter` means for this file.

    Raises:
        ValueError: it is neither one character, nor a name, nor auto; or auto finds none.
    """
    if delimiter == "auto":
        found = detect(file)
        if found is None:
            raise ValueError(
                f"dataset.delimiter=auto finds no delimiter in {file}: none of {', '.join(TRIED)} gives every line as "
                "many cells as the header has; repair the file, or name its delimiter"
            )
        return NAMES[found]
    separator = NAMES.get(delimiter, delimiter) if isinstance(delimiter, str) else ""
    if len(separator) != 1 or separator in '"\r\n':
        raise ValueError(
            f"dataset.delimiter={delimiter} must be auto, one of {', '.join(NAMES)}, or one character other than a "
            "quotation mark, in quotes on a command line: 'dataset.delimiter=\":\"'"
        )
    return separator


def detect(file: Path) -> str | None:
    """The name of the delimiter that gives the file's first lines the most cells, in all lines as many; None: none.

    Lines of one cell each have no delimiter.
    """
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as content:
        lines = list(itertools.islice(content, LINES))
    widths = {name: _width(lines, NAMES[name]) for name in TRIED}
    best = max(TRIED, key=lambda name: widths[name])
    return best if widths[best] > 1 else None


def _width(lines: list[str], separator: str) -> int:
    """Cells a line; 0 if lines differ."""
    try:
        found = {len(cells) for cells in csv.reader(lines, delimiter=separator) if cells}
    except csv.Error:
        return 0
    return found.pop() if len(found) == 1 else 0
