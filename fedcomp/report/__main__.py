"""`python -m fedcomp.report PATH... [--out DIR]`: many runs as a table and a figure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedcomp.report import curves, table
from fedcomp.report.group import group, left_out
from fedcomp.report.runs import Run, find
from fedcomp.tracking import units
from fedcomp.tracking.atomic import explained, write_atomically


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, list the runs that are not in it, write table.md, table.csv, curves.png and curves.pdf.

    Args:
        argv: paths and options; None for the command line's.

    Returns:
        The exit status: 0, or 2 after one line on standard error.
    """
    parser = argparse.ArgumentParser(prog="python -m fedcomp.report", description="Many runs as a table and a figure.")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a run's folder, or one that holds runs (outputs/)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write; default: report/ in the first PATH")
    arguments = parser.parse_args(argv)
    try:
        report(arguments.paths, arguments.out or Path(arguments.paths[0]) / "report")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def report(paths: Sequence[str | Path], out: Path) -> None:
    """What `main` does, with ValueErrors for what it cannot do: no run under the paths, nowhere to write."""
    from rich.console import Console

    runs = find(paths)
    groups = group(runs)
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 200)
    if groups:
        with explained(out):
            out.mkdir(parents=True, exist_ok=True)
        results = table.build(groups)
        console.print(table.to_rich(results))
        write_atomically(out / "table.md", table.to_markdown(results).encode())
        write_atomically(out / "table.csv", table.to_csv(results).encode())
        curves.plot_groups(groups, [out / "curves.png", out / "curves.pdf"])
    missing = left_out(runs, groups)
    if missing:
        console.print(f"Not in the table: {len(missing)} of {len(runs)} runs")
        for run, reason in missing:
            console.print(f"  {describe(run, reason)}", markup=False, soft_wrap=True)
    if groups:
        console.print(f"Written: {out}/table.md, table.csv, curves.png, curves.pdf", markup=False, soft_wrap=True)


def describe(run: Run, reason: str) -> str:
    """One line on a run that is in no table: where, why, and how far it came."""
    parts = [f"{run.folder}: {reason}"]
    if run.lines:
        last = run.lines[-1]
        parts.append(f"at round {last['round']}")
        if "test/accuracy" in last:
            parts.append(f"accuracy {units.percent(last['test/accuracy'])} %")
    if run.error:
        parts.append(run.error.splitlines()[0])
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
