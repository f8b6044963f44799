"""Tables for the terminal, as Markdown and as CSV. `latex.py` and `page.py` write LaTeX and HTML.

Text that users wrote, such as labels, is escaped, so that Markdown, spreadsheets and terminals show it as it is.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from fedcomp.core.validate import reads_as_number
from fedcomp.display import figure
from fedcomp.reporting.tables.rows import Rows

if TYPE_CHECKING:
    from rich.table import Table

MARKUP = re.compile(r"[\\`*\[\]<>~|$]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown would interpret; underscores within words are plain."""
BLOCK = re.compile(r"^(#+|[-+]|\d+[.)])(?=\s|$)")
"""What would start a heading or a list where a line begins."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
NAME_WIDTH = 30
"""Characters of a word in a name that a terminal shows in one line, however narrow it is."""
GAP = 3
"""Characters between two columns of a terminal's table."""
WIDE = 400
"""Characters of a line where there is no terminal."""


def fitting(rows: Rows, width: int, remedy: str = "") -> Rows:
    """The columns that fit into a terminal of `width` characters, the most important ones first, one at least.

    The caption names those that do not, with the `remedy` behind them.
    """
    shown = rows.fitting(_least_widths(rows), width - 1, fewest=1)
    left_out = [name for name in rows.names if name not in shown.names]
    if not left_out:
        return rows
    return replace(shown, caption=f"{rows.caption} Left out to fit {width} characters: {', '.join(left_out)}{remedy}.")


def to_rich(rows: Rows, width: int) -> Table:
    """For a terminal of `width` characters. Where that is narrow, names and titles are broken between words."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    least = _least_widths(rows)
    whole = [GAP + max(map(len, own)) for own in zip(rows.titles, *rows.cells)]
    narrow = 1 + sum(whole) > width
    out = RichTable(box=SIMPLE_HEAD, caption=rows.caption, caption_justify="left")
    for index, title in enumerate(rows.titles):
        if index < rows.num_names:
            out.add_column(Text(title), overflow="fold", min_width=least[index] - GAP)
        else:
            own = least[index] - GAP if narrow else None
            out.add_column(Text(title), justify="right", overflow="fold", width=own)
    for number, row in enumerate(rows.cells):
        if number in rows.breaks:
            out.add_section()
        shown = [Text(one_line(text)) for text in row]
        for column in rows.bold(number):
            shown[column].stylize("bold")
        out.add_row(*shown)
    return out


def to_markdown(rows: Rows) -> str:
    """For a README: a Markdown table."""
    rule = ["---"] * rows.num_names + ["---:"] * (len(rows.titles) - rows.num_names)
    lines = [list(map(escape_markdown, rows.titles)), rule]
    for number, row in enumerate(rows.cells):
        bold = rows.bold(number)
        lines.append(
            [f"**{escape_markdown(text)}**" if at in bold else escape_markdown(text) for at, text in enumerate(row)]
        )
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def to_csv(rows: Rows) -> str:
    """For other programs: raw numbers, empty where unknown."""
    return csv_text([list(rows.raw[0]), *(line.values() for line in rows.raw)])


def csv_text(lines: Iterable[Iterable[object]]) -> str:
    """Lines of cells as CSV. Text that a spreadsheet would take for a formula begins with an apostrophe."""
    out = io.StringIO()
    for line in lines:
        cells = [escape_csv(value) if isinstance(value, str) else value for value in line]
        csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _least_widths(rows: Rows) -> list[int]:
    """Characters that each column needs at least, with the gap beside it: a name's longest word, a number whole."""
    out = []
    for place, title in enumerate(rows.titles):
        cells = [row[place] for row in rows.cells]
        if place < rows.num_names:
            cells = [word[:NAME_WIDTH] for text in cells for word in text.split()]
        out.append(GAP + max(map(len, [*title.split(), *cells]), default=1))
    return out


def one_line(text: str) -> str:
    """The text without line breaks and control characters, blanks in their place."""
    return "".join(character if character.isprintable() else " " for character in text)


def escape_markdown(text: str) -> str:
    """Text in a table's cell or in a line. Math between dollars stays math, as GitHub and others set it."""
    text = one_line(text)
    if not figure.is_math(text):
        return _escape_markup(text)
    parts = re.split(r"(?<!\\)\$", text)
    return "$".join(
        part.replace("|", r"\vert ").replace("<", r"\lt ") if number % 2 else _escape_markup(part)
        for number, part in enumerate(parts)
    )


def escape_markdown_line(text: str) -> str:
    """Text that is a line of its own, or an item of a list."""
    return BLOCK.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", escape_markdown(text))


def escape_csv(text: str) -> str:
    """Text in a cell of a CSV file, which a spreadsheet shall not take for a formula: an apostrophe goes before it."""
    return f"'{text}" if text.startswith(FORMULA) and not reads_as_number(text) else text


def _escape_markup(text: str) -> str:
    return MARKUP.sub(lambda match: f"\\{match[0]}", text).replace("&", "&amp;")
