"""`fedcomp-status PATH [--watch SECONDS]`: done, running with progress, failed with its last line, time left."""

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fedcomp.runtime.command import command, exit_status
from fedcomp.status.runs import GOING, RunState, run_states
from fedcomp.status.table import render

EXAMPLES = """\
examples:
  fedcomp-status                         all runs in outputs/
  fedcomp-status outputs/grid --watch    the same table every 5 seconds, until no run is left

exit status: 0 no run has failed, 1 some have or were killed, 2 a wrong argument (one line on standard error)"""
PLAIN_WIDTH = 200
WITH_BARS = 100
"""Characters of a terminal that has room for bars beside the numbers."""
WATCH_SECONDS = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Show the runs under a folder. Returns the exit status."""
    parser = command(
        "fedcomp-status",
        "The runs in a folder: how many are done, how far the others are, when they end, why some failed.",
        EXAMPLES,
    )
    parser.add_argument("path", nargs="?", default="outputs", help="a folder that holds runs; default: outputs")
    parser.add_argument(
        "--watch",
        type=float,
        nargs="?",
        const=WATCH_SECONDS,
        metavar="SECONDS",
        help="again every SECONDS (5), until none runs, waits or is requeued",
    )
    arguments = parser.parse_intermixed_args(_with_seconds(sys.argv[1:] if argv is None else argv))
    return exit_status(lambda: _status(Path(arguments.path), arguments.watch))


def _with_seconds(words: Sequence[str]) -> list[str]:
    """The same words, with `--watch PATH` as `--watch=5 PATH`: argparse takes the path for the seconds."""
    given = list(words)
    for place, (word, after) in enumerate(zip(words, [*words[1:], ""])):
        if word == "--watch" and not re.fullmatch(r"[0-9.eE+-]+", after):
            given[place] = f"--watch={WATCH_SECONDS:g}"
    return given


def _status(root: Path, seconds: float | None) -> int:
    if seconds is not None and not seconds > 0:
        raise ValueError(f"--watch {seconds:g}: give seconds above 0, or --watch alone for {WATCH_SECONDS:g}")
    runs = _watch(root, seconds) if seconds else _show(root)
    return int(any(run.state in ("failed", "killed") for run in runs))


def _show(root: Path) -> list[RunState]:
    from rich.console import Console

    found, tty = run_states(root), sys.stdout.isatty()
    console = Console(highlight=False, soft_wrap=not tty, width=None if tty else PLAIN_WIDTH)
    console.print(render(found, bars=tty and console.width >= WITH_BARS))
    return found.runs


def _watch(root: Path, seconds: float) -> list[RunState]:
    from rich.console import Console
    from rich.live import Live

    if not sys.stdout.isatty():
        while _going(runs := _show(root)):
            time.sleep(seconds)
        return runs
    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            found = run_states(root)
            live.update(render(found, bars=live.console.width >= WITH_BARS), refresh=True)
            if not _going(found.runs):
                return found.runs
            time.sleep(seconds)


def _going(runs: Sequence[RunState]) -> bool:
    return any(run.state in GOING for run in runs)


if __name__ == "__main__":
    sys.exit(main())
