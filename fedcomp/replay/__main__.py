"""`fedcomp-replay PATH... network=NAME`: the seconds of finished runs on other networks, without training again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.runtime.command import command, exit_status

if TYPE_CHECKING:
    from fedcomp.records.reader import RecordedRun

EPILOG = """\
examples:
  fedcomp-replay outputs/grid network=lte                            one network
  fedcomp-replay outputs/grid network=lte,5g --target 0.9            two; seconds until 90 % test accuracy
  fedcomp-replay outputs/grid network=lte network.seconds_per_gradient=0,1e-3,1e-2
  fedcomp-replay outputs/grid network=csv network.path=rates.csv --out outputs/measured
  fedcomp-replay outputs/grid --config-dir mine network=mine         one of your own
  fedcomp-report outputs/measured                                    curves against seconds, tables, one page

Runs must have traffic.npz, which a run with a network or with record_traffic=true writes. Their times are exactly those
of runs made under the other network. A network with a deadline changes who learns and cannot be replayed.
With --out, DIR/<name>/<hash>/seed=<n> holds what such a run would have recorded, as fedcomp-report reads it.
exit status: 0 done, 1 no run could be replayed, 2 a wrong argument (one line on standard error)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table of times, and write the replayed runs if asked for. Returns the exit status."""
    parser = command("fedcomp-replay", "How long finished runs take on other networks, from what they sent.", EPILOG)
    parser.add_argument(
        "words",
        nargs="+",
        metavar="PATH | network=NAME | network.OPTION=VALUE",
        help="folders of runs, or that hold some; networks and their options, several values after commas",
    )
    parser.add_argument("--target", metavar="[METRIC=]VALUE", help="seconds until a run is as good: 0.9, test/loss=0.3")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the replayed runs below this folder")
    parser.add_argument("--partial", action="store_true", help="also unfinished runs, up to their last checkpoint")
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="a folder of your own configs and Python files")
    given = parser.parse_intermixed_args(argv)
    return exit_status(lambda: _replay(given.words, given.target, given.out, given.partial, given.config_dir))


SHOWN = ("seconds_to_target", "rounds_to_target", "time_total", "bits_total")
"""Columns of the table, beside the runs' main metric and their seeds."""


def _replay(words: Sequence[str], target: str | None, out: Path | None, partial: bool, config_dir: Path | None) -> int:
    from fedcomp.display.units import counted  # the rest takes seconds
    from fedcomp.records.reader import read_runs
    from fedcomp.replay.networks import networks
    from fedcomp.replay.replayed import destination, replayed, write

    named = networks([word for word in words if word.startswith(("network=", "network."))], config_dir)
    paths = [word for word in words if not word.startswith(("network=", "network."))]
    if not paths:
        raise ValueError("no run: give the folder of one, or one that holds runs (outputs/<name>)")
    found, asked, refused = [], [], []
    for run in read_runs(paths):
        for one in named:
            try:
                again, clocks = replayed(run, one, partial)
            except ValueError as error:
                refused.append(str(error))
                continue
            found.append(replace(again, config={**again.config, "network": one.shown}, state="finished"))
            if out is not None:
                destination(again, run.folder, out)  # before anything is written
                asked.append((again, run.folder, clocks, out))
    for line in dict.fromkeys(refused):
        print(f"left out: {line}", file=sys.stderr)
    if not found:
        return 1
    _show(found, target)
    if out is not None:
        written = {write(*one): one[0].finished for one in asked}
        next_command = f"fedcomp-report {out}" if any(written.values()) else f"fedcomp-status {out}"
        print(f"{counted(len(written), 'replayed run')} in {out}: {next_command}")
        if short := len(written) - sum(written.values()):
            print(f"{short} of them of unfinished runs, which stand as interrupted: fedcomp-report leaves them out")
    return 0


def _show(runs: Sequence[RecordedRun], target: str | None) -> None:
    """Print one row for each method and network, means over seeds."""
    from rich.console import Console

    from fedcomp.reporting.group import group
    from fedcomp.reporting.tables import formats, table
    from fedcomp.reporting.tables.target import parse_target

    groups = group(list(runs))
    whole = table.build(groups, parse_target(target, groups) if target else None)
    first = whole.names[0]
    kept = [first, *(name for name in (*SHOWN, table.SEEDS) if name in whole.names and name != first)]
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 160)
    console.print(formats.to_rich(formats.fitting(whole.select(kept), console.width), console.width))


if __name__ == "__main__":
    sys.exit(main())
