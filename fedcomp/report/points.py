"""How wide text is when LaTeX sets it in Computer Modern at 10 pt, to within a few percent."""

from __future__ import annotations

from collections.abc import Iterable

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


def width(text: str) -> float:
    """Points of one line of upright text."""
    return sum(_character(character) for character in text)


def column(lines: Iterable[str]) -> float:
    """Points of a column of a tabular, with the gap to its neighbour, as if every mean were bold."""
    return GAP + max(map(_with_bold_mean, lines), default=0.0)


def _with_bold_mean(line: str) -> float:
    mean = line.split(" ± ")[0].split(" (")[0] if line[:1].isdigit() else ""
    return width(line) + (BOLD - 1) * width(mean)


def _character(character: str) -> float:
    for characters, points in _CLASSES:
        if character in characters:
            return points
    return _UPPER if character.isupper() else _OTHER
