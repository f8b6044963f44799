"""The table for people and programs: terminal, Markdown, CSV. `latex.py` and `page.py` write the other two.

People see accuracies in percent, three digits of everything else, and the paper's count of bits in brackets where it
is another than the true one; CSV holds the raw numbers.

Text that users wrote, such as labels, is escaped, so that Markdown, spreadsheets and terminals show it as it is.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedcomp.core.validate import reads_as_number
from fedcomp.display import figure
from fedcomp.reporting.tables.table import Column, Mean, ResultTable, TableRow

if TYPE_CHECKING:
    from rich.table import Table

CAPTION = (
    "Last evaluation, mean ± sample deviation over seeds; best: each seed's best evaluation. "
    "Uplink, downlink, total, broadcast: bits per parameter, participating client and round; "
    "downlink per receiver: per client that received it, idle ones too; "
    "in brackets the paper's count, where it is another."
)

MARKUP = re.compile(r"[\\`*\[\]<>~|$]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown would interpret; underscores within words are plain."""
BLOCK = re.compile(r"^(#+|[-+]|\d+[.)])(?=\s|$)")
"""What would start a heading or a list where a line begins."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def titles(table: ResultTable) -> list[str]:
    """The titles of all columns, settings and method first."""
    settings = [key.replace("num_clients", "clients") for key in table.settings]
    return [*settings, "method", *(column.title for column in table.columns), *(["seeds"] if table.seeds else [])]


def cells(table: ResultTable) -> list[list[str]]:
    """The table as text, one list a row."""
    return [
        [
            *names(table, row),
            *(cell(*parts, parts[0].num_seeds(row.group)) for parts in zip(table.columns, row.means, row.paper)),
            *([str(len(row.group.runs))] if table.seeds else []),
        ]
        for row in table.rows
    ]


def names(table: ResultTable, row: TableRow) -> list[str]:
    """The row's setting and method."""
    setting = dict(row.group.setting)
    return [*(setting.get(key, "") for key in table.settings), row.group.label]


def cell(column: Column, mean: Mean | None, paper: Mean | None, num_seeds: int) -> str:
    """`97.31 ± 0.12`, `1.16 (0.956)`, `34 ± 2 (2 of 3)`, `not reached (0 of 3)`, or a dash for nothing."""
    if mean is None:
        return f"not reached (0 of {num_seeds})" if column.reached and num_seeds else "–"
    text = column.show(mean.mean)
    if column.deviation and mean.deviation is not None:
        text += f" ± {column.show(mean.deviation)}"
    if column.reached and mean.num_seeds < num_seeds:
        text += f" ({mean.num_seeds} of {num_seeds})"
    if paper is not None:
        text += f" ({column.show(paper.mean)})"
    return text


def to_rich(table: ResultTable, every_column: bool = False) -> Table:
    """For the terminal: the columns that are narrow, or every one."""
    table = table.select([place for place, column in enumerate(table.columns) if column.narrow or every_column])
    return rich_table(titles(table), cells(table), len(table.settings) + 1, CAPTION)


def rich_table(titles: Sequence[str], cells: Sequence[Sequence[str]], num_names: int, caption: str) -> Table:
    """Text in columns, the first `num_names` to the left."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    out = RichTable(box=SIMPLE_HEAD, caption=caption, caption_justify="left")
    for index, title in enumerate(titles):
        if index < num_names:  # broken between words alone
            longest = max((len(word) for row in cells for word in row[index].split()), default=1)
            out.add_column(Text(title), overflow="fold", min_width=min(longest, 30))
        else:
            out.add_column(Text(title), justify="right", overflow="fold")
    before: list[str] = []
    for row in cells:
        own = list(row[: num_names - 1])
        if before and own != before:
            out.add_section()
        before = own
        out.add_row(*(Text(one_line(text)) for text in row))
    return out


def to_markdown(table: ResultTable) -> str:
    """For a README: a Markdown table and its caption."""
    return f"{markdown_table(titles(table), cells(table), len(table.settings) + 1)}\n{CAPTION}\n"


def markdown_table(titles: Sequence[str], cells: Sequence[Sequence[str]], num_names: int) -> str:
    """Text in columns, the first `num_names` to the left."""
    rule = ["---"] * num_names + ["---:"] * (len(titles) - num_names)
    rows = [list(map(escape_markdown, titles)), rule, *(list(map(escape_markdown, row)) for row in cells)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def to_csv(table: ResultTable) -> str:
    """For other programs: raw numbers, `<name>` the mean and `<name>_std` the sample deviation, empty where unknown.

    `paper_<name>` is the count of the method's paper, the true one where it is no other; `seeds_reached` says how many
    seeds reached the target. Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    counted = [index for index in range(len(table.columns)) if any(row.paper[index] for row in table.rows)]
    head = [*table.settings, "method", "seeds"]
    for index, column in enumerate(table.columns):
        head += [column.name, f"{column.name}_std"]
        head += [f"paper_{column.name}"] if index in counted else []
        head += ["seeds_reached"] if column.name == "rounds_to_target" else []
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(escape_csv, head))
    for row in table.rows:
        numbers: list[float | int | None] = []
        for index, mean in enumerate(row.means):
            numbers += [None, None] if mean is None else [mean.mean, mean.deviation]
            if index in counted:
                paper = row.paper[index] or mean
                numbers.append(None if paper is None else paper.mean)
            if table.columns[index].name == "rounds_to_target":
                numbers.append(0 if mean is None else mean.num_seeds)
        shown = ["" if number is None else repr(number) for number in numbers]
        writer.writerow([*map(escape_csv, names(table, row)), len(row.group.runs), *shown])
    return out.getvalue()


def best_rows(table: ResultTable) -> list[set[int]]:
    """Of each column the rows with the best mean of their setting, as shown; none where one method stands alone."""
    out: list[set[int]] = []
    for index, column in enumerate(table.columns):
        winners: set[int] = set()
        for setting in dict.fromkeys(row.group.setting for row in table.rows):
            rows = [number for number, row in enumerate(table.rows) if row.group.setting == setting]
            if column.better is not None and len(rows) > 1:
                winners |= _winners(table, index, rows)
        out.append(winners)
    return out


def _winners(table: ResultTable, index: int, rows: Sequence[int]) -> set[int]:
    """The rows with the best mean, as shown; not those of methods of which some seed lacks the value."""
    column = table.columns[index]
    means = {}
    for number in rows:
        mean = table.rows[number].means[index]
        whole = mean is not None and mean.mean == mean.mean and abs(mean.mean) != float("inf")
        if mean is not None and whole and mean.num_seeds == len(table.rows[number].group.runs):
            means[number] = mean.mean
    if not means:
        return set()
    top = column.show((max if column.better == "high" else min)(means.values()))
    winners = {number for number, mean in means.items() if column.show(mean) == top}
    return winners if len(winners) < len(rows) else set()


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
