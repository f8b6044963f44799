"""Which columns of the result table are shown: those that `--columns` names, else the most important ones that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedcomp.reporting.tables.rows import Rows
from fedcomp.reporting.tables.table import SEEDS

IMPORTANCE = (
    "seconds_to_target",
    "rounds_to_target",
    "bits_to_target",
    "bpp_uplink",
    "bits_total",
    "time_total",
    "bpp_downlink",
    "bpp_downlink_per_receiver",
    "best_",
    SEEDS,
    "",
    "bpp_broadcast",
    "late_",
    "bpp_total",
    "seconds",
)
"""Columns, the most important first, after the first quality. `best_` is the start of a name, "" any other name."""
FEWEST = 3
"""At least so many of the most important columns are shown, whether they fit or not."""


def named_columns(text: str, table: Rows) -> Rows:
    """The columns named in `a,b,c`, in that order, as the CSV calls them or as they are recorded (`test/accuracy`).

    Raises:
        ValueError: an unknown name, or a name twice.
    """
    wanted = [word.strip().replace("/", "_") for word in text.split(",") if word.strip()]
    unknown = [word for word in wanted if word not in table.names]
    if unknown or not wanted:
        given = ", ".join(unknown) or repr(text)
        raise ValueError(f"--columns {given}: no such column in this table, allowed are {', '.join(table.names)}")
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"--columns {text}: a column is named twice")
    return table.select(wanted)


def for_terminal(table: Rows) -> Rows:
    """The table without the late means: width is scarce."""
    return table.select([name for name in table.names if not name.startswith("late_")])


def ranked(table: Rows) -> list[str]:
    """The names of the columns, the most important one first."""

    def rank(name: str) -> int:
        if name == table.names[0]:
            return -1
        if name in IMPORTANCE:
            return IMPORTANCE.index(name)
        start = name.split("_")[0] + "_"
        return IMPORTANCE.index(start if start in IMPORTANCE else "")

    return sorted(table.names, key=rank)


Width = Callable[[str, Iterable[str], bool], float]
"""(title, cells, whether the cells are names) -> width of the column, in any unit."""


def widths(table: Rows, width: Width) -> list[float]:
    """The width of every column, settings and method first."""
    whole = zip(table.titles, zip(*table.cells))
    return [width(title, own, place < table.num_names) for place, (title, own) in enumerate(whole)]


def fitting(table: Rows, width: Width, limit: float) -> Rows:
    """The table with as many columns as fit into `limit`, the most important ones first, FEWEST at least."""
    every = widths(table, width)
    each = dict(zip(table.names, every[table.num_names :]))
    spent, kept = sum(every[: table.num_names]), set[str]()
    for name in ranked(table):
        spent += each[name]
        if spent > limit and len(kept) >= FEWEST:
            break
        kept.add(name)
    return table.select([name for name in table.names if name in kept])
