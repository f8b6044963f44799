"""The table for papers: LaTeX with booktabs, the best value of each column bold."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedcomp.report.formats import CAPTION, best_rows, cells, titles
from fedcomp.report.table import ResultTable
from fedcomp.tracking import figure

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
}


def to_latex(table: ResultTable) -> str:
    """A `tabular` between \\toprule and \\bottomrule, a rule between settings; needs \\usepackage{booktabs} alone."""
    num_names = len(table.settings) + 1
    best = best_rows(table)
    body = cells(table)
    for column, rows in enumerate(best):
        for row in rows:
            body[row][num_names + column] = _bold(body[row][num_names + column])
    plain = [[text if text.startswith(r"\textbf") else escape(text) for text in row] for row in body]
    breaks = {
        number
        for number in range(1, len(table.rows))
        if table.rows[number].group.setting != table.rows[number - 1].group.setting
    }
    return tabular(titles(table), plain, num_names, breaks, CAPTION)


def tabular(
    titles: Sequence[str], cells: Sequence[Sequence[str]], num_names: int, breaks: set[int], caption: str
) -> str:
    """Escaped cells as a booktabs table.

    Args:
        titles: plain text.
        cells: LaTeX, one list a row.
        num_names: columns to the left; the others to the right.
        breaks: rows with a rule above.
        caption: plain text, put into a comment.
    """
    lines = [
        f"% {caption}",
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{{'l' * num_names}{'r' * (len(titles) - num_names)}}}",
        r"\toprule",
        " & ".join(map(escape, titles)) + r" \\",
        r"\midrule",
    ]
    for number, row in enumerate(cells):
        lines += [r"\midrule"] if number in breaks else []
        lines.append(" & ".join(row) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape(text: str) -> str:
    """A user's text for LaTeX: math between dollars stays; what pdflatex cannot read becomes a question mark."""
    if text.isascii() and not set(text) & set("%&#") and figure.is_math(text):
        parts = re.split(r"(?<!\\)\$", text)
        return "$".join(part if number % 2 else _plain(part) for number, part in enumerate(parts))
    return _plain(text)


def _plain(text: str) -> str:
    """Each character for itself."""
    out = []
    for character in text:
        if character in SPECIAL:
            out.append(SPECIAL[character])
        else:
            out.append(character if character.isascii() or (character.isalpha() and ord(character) < 0x180) else "?")
    return "".join(out)


def _bold(text: str) -> str:
    """The mean bold, what stands behind it (deviation, the paper's count) not."""
    number, gap, rest = text.partition(" ± ")
    if not gap:
        number, gap, rest = text.partition(" (")
    return rf"\textbf{{{escape(number)}}}{escape(gap + rest)}"
