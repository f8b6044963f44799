"""Which columns of the result table are shown: those that `--columns` names, else the most important ones that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fedcomp.reporting.tables.formats import cells, titles
from fedcomp.reporting.tables.table import ResultTable

SEEDS = "seeds"
"""Name of the column that says how many seeds a row has."""

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


def names(table: ResultTable) -> list[str]:
    """The names of all columns after the method's, in order."""
    return [*(column.name for column in table.columns), *([SEEDS] if table.seeds else [])]


def named_columns(text: str, table: ResultTable) -> ResultTable:
    """The columns named in `a,b,c`, in that order, as the CSV calls them or as they are recorded (`test/accuracy`).

    Raises:
        ValueError: an unknown name, or a name twice.
    """
    wanted = [word.strip().replace("/", "_") for word in text.split(",") if word.strip()]
    known = names(table)
    unknown = [word for word in wanted if word not in known]
    if unknown or not wanted:
        given = ", ".join(unknown) or repr(text)
        raise ValueError(f"--columns {given}: no such column in this table, allowed are {', '.join(known)}")
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"--columns {text}: a column is named twice")
    return select(table, wanted)


def select(table: ResultTable, kept: Sequence[str]) -> ResultTable:
    """The table with these columns alone, in this order; seeds stand last."""
    known = names(table)
    shown = table.select([known.index(name) for name in kept if name != SEEDS])
    return replace(shown, seeds=SEEDS in kept)


def ranked(table: ResultTable) -> list[str]:
    """The names of the columns, the most important one first."""

    def rank(name: str) -> int:
        if name == table.columns[0].name:
            return -1
        if name in IMPORTANCE:
            return IMPORTANCE.index(name)
        start = name.split("_")[0] + "_"
        return IMPORTANCE.index(start if start in IMPORTANCE else "")

    return sorted(names(table), key=rank)


Width = Callable[[str, Iterable[str], bool], float]
"""(title, cells, whether the cells are names) -> width of the column, in any unit."""


def widths(table: ResultTable, width: Width) -> list[float]:
    """The width of every column, settings and method first."""
    num_names = len(table.settings) + 1
    whole = zip(titles(table), zip(*cells(table)))
    return [width(title, own, place < num_names) for place, (title, own) in enumerate(whole)]


def fitting(table: ResultTable, width: Width, limit: float) -> ResultTable:
    """The table with as many columns as fit into `limit`, the most important ones first, FEWEST at least."""
    every, num_names = widths(table, width), len(table.settings) + 1
    each = dict(zip(names(table), every[num_names:]))
    spent, kept = sum(every[:num_names]), set[str]()
    for name in ranked(table):
        spent += each[name]
        if spent > limit and len(kept) >= FEWEST:
            break
        kept.add(name)
    return select(table, [name for name in names(table) if name in kept])


def left_out(table: ResultTable, shown: ResultTable) -> list[str]:
    """The names of the columns of `table` that `shown` lacks."""
    return [name for name in names(table) if name not in names(shown)]
