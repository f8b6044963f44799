"""The table that `fedcomp-replay` prints: the runs' best quality, and their seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.group import group
from fedcomp.reporting.tables import formats, table
from fedcomp.reporting.tables.target import parse_target

SHOWN = ("seconds_to_target", "rounds_to_target", "time_total", "bits_total", table.SEEDS)


def show(runs: Sequence[RecordedRun], target: str | None) -> None:
    """Print one row for each method and network, means over seeds."""
    from rich.console import Console

    groups = group(list(runs))
    whole = table.build(groups, parse_target(target, groups) if target else None)
    first = whole.names[0]
    kept = [first, *(name for name in SHOWN if name in whole.names and name != first)]
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 160)
    console.print(formats.to_rich(whole.select(kept)))
