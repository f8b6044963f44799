"""The table for papers: LaTeX with booktabs, the best value of each column bold.

Widths of text are those of Computer Modern at 10 pt, to within a few percent.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence

from fedcomp.display import figure
from fedcomp.reporting.tables.formats import one_line
from fedcomp.reporting.tables.rows import FEWEST, Rows

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "·": r"$\cdot$",
    "–": "--",
    "−": "$-$",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "`": r"\`{}",
}
"""Among them brackets and stars, which `\\\\` and `\\midrule` would take for options where a row begins with one."""

NAME_WIDTH, NUMBER_WIDTH = 26, 14
"""Characters of a name and of a number that stand in one line."""

PAPER = 345.0
"""Text width of a one-column `article` at 10 pt; most others are wider, as is a two-column paper across both."""
GAP = 12.0
"""Between two columns of a tabular: twice \\tabcolsep."""
BOLD = 1.15

_CLASSES = (
    ("!',.:;[]`il|·", 2.8),
    ("fj -I_", 3.3),
    ("()rst", 3.9),
    ("cez", 4.4),
    ("kqvxybdhnpuSZ", 5.5),
    ("LFEPB", 6.7),
    ("&+<=>@GKOQ±−≤≥", 7.8),
    ("#%mMW", 8.5),
)
_UPPER, _OTHER = 7.4, 5.0


def fitting(table: Rows, limit: float = PAPER) -> Rows:
    """The columns that fit into so many points, the most important ones first, FEWEST at least."""
    return table.fitting(_widths(table), limit + GAP, FEWEST)


def table_width(table: Rows) -> float:
    """Points that LaTeX needs for it."""
    return sum(_widths(table)) - GAP


def to_latex(table: Rows, left_out: Sequence[str] = ()) -> str:
    """A booktabs table, in several lines where names are long or titles wider than their columns.

    It is a `tabular` between \\toprule and \\bottomrule with a rule between blocks, and needs \\usepackage{booktabs}
    alone. The caption stands in a comment.

    Args:
        table: with the columns to show.
        left_out: names of columns that the comment says are not here.
    """
    num_names = table.num_names
    bold = table.best or [set[int]()] * (len(table.titles) - num_names)
    heads = [
        _title_lines(title, _lines(own, at < num_names))
        for at, (title, own) in enumerate(zip(table.titles, zip(*table.cells)))
    ]
    lost = [text for row in table.cells for text in row[:num_names] if escape(text).count("?") > text.count("?")]
    gone = f" Left out to fit {PAPER:.0f} pt: {', '.join(left_out)}; --columns chooses." if left_out else ""
    lines = [
        f"% {table.caption}{gone}",
        *(f"% {escape(text)} is {one_line(text)}: lualatex and xelatex can set it, pdflatex cannot" for text in lost),
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{@{{}}{'l' * num_names}{'r' * (len(table.titles) - num_names)}@{{}}}}",
        r"\toprule",
        " & ".join(_stacked(list(map(escape, head)), "b", "r") for head in heads) + r" \\",
        r"\midrule",
    ]
    for number, row in enumerate(table.cells):
        lines += [r"\midrule"] if number in table.breaks else []
        shown = [_name(text) for text in row[:num_names]]
        shown += [_number(text, number in rows) for text, rows in zip(row[num_names:], bold)]
        lines.append(" & ".join(shown) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape(text: str) -> str:
    """A user's text for LaTeX: math between dollars stays; what pdflatex cannot read becomes a question mark."""
    text = one_line(text)
    if text.isascii() and not set(text) & set("%&#") and figure.is_math(text):
        parts = re.split(r"(?<!\\)\$", text)
        return "$".join(part if number % 2 else _plain(part) for number, part in enumerate(parts))
    return _plain(text)


def _title_lines(title: str, lines: Sequence[str]) -> list[str]:
    """The title, in two lines if it is wider than the lines below it."""
    words = title.split(" ")
    if len(words) == 1 or text_width(title) <= max(map(text_width, lines), default=0.0):
        return [title]
    halves = [(" ".join(words[:place]), " ".join(words[place:])) for place in range(1, len(words))]
    return list(min(halves, key=lambda lines: max(map(text_width, lines))))


def _name_lines(text: str) -> list[str]:
    """A name in lines of NAME_WIDTH characters, broken between words; one with math stays whole."""
    if "$" in text:
        return [text]
    return textwrap.wrap(text, NAME_WIDTH, break_long_words=False, break_on_hyphens=False) or [text]


def _number_lines(text: str) -> list[str]:
    """A number, in two lines if it is long and something stands behind it in brackets."""
    start, gap, rest = text.partition(" (")
    return [start, "(" + rest] if gap and len(text) > NUMBER_WIDTH else [text]


def _lines(cells: Iterable[str], names: bool) -> list[str]:
    """All lines of a column."""
    return [line for text in cells for line in (_name_lines(text) if names else _number_lines(text))]


def _widths(table: Rows) -> list[float]:
    """Points of every column, settings and method first, each with the gap to its neighbour."""
    columns = [_lines(own, place < table.num_names) for place, own in enumerate(zip(*table.cells))]
    return [column_width([*_title_lines(title, own), *own]) for title, own in zip(table.titles, columns)]


def _name(text: str) -> str:
    return _stacked(list(map(escape, _name_lines(text))), "t", "l")


def _number(text: str, best: bool) -> str:
    """The cell in LaTeX; of the best one the mean is bold, what stands behind it (deviation, paper's count) is not."""
    first, *rest = _number_lines(text)
    number, gap, behind = first.partition(" ± " if " ± " in first else " (")
    shown = rf"\textbf{{{escape(number)}}}{escape(gap + behind)}" if best else escape(first)
    return _stacked([shown, *map(escape, rest)], "t", "r")


def _stacked(lines: Sequence[str], at: str, side: str) -> str:
    """Lines of LaTeX in one cell: the first (`t`) or the last (`b`) level with the row, to the left (`l`) or right."""
    if len(lines) == 1:
        return lines[0]
    return rf"\begin{{tabular}}[{at}]{{@{{}}{side}@{{}}}}" + r" \\ ".join(lines) + r"\end{tabular}"


def _plain(text: str) -> str:
    """Each character for itself."""
    out = []
    for before, character in zip(f" {text}", text):
        if before == character == "-":  # two are not to become one long dash
            out.append("{}-")
        elif character in SPECIAL:
            out.append(SPECIAL[character])
        else:
            out.append(character if character.isascii() or (character.isalpha() and ord(character) < 0x180) else "?")
    return "".join(out)


def text_width(text: str) -> float:
    """Points of one line of upright text."""
    return sum(_character(character) for character in text)


def column_width(lines: Iterable[str]) -> float:
    """Points of a column of a tabular, with the gap to its neighbour, as if every mean were bold."""
    return GAP + max(map(_with_bold_mean, lines), default=0.0)


def _with_bold_mean(line: str) -> float:
    mean = line.split(" ± ")[0].split(" (")[0] if line[:1].isdigit() else ""
    return text_width(line) + (BOLD - 1) * text_width(mean)


def _character(character: str) -> float:
    for characters, points in _CLASSES:
        if character in characters:
            return points
    return _UPPER if character.isupper() else _OTHER
