"""`fedcomp-report PATH...`, the same as `python -m fedcomp.reporting PATH...`: many runs as tables and figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedcomp.runtime.command import exit_status

EPILOG = """\
examples:
  fedcomp-report outputs/quickstart                      all runs of one name, grouped over seeds
  fedcomp-report outputs/grid outputs/other --out paper  two names in one table, written to paper/
  fedcomp-report outputs/grid --target 0.9               rounds and bits until 90 % test accuracy
  fedcomp-report outputs/grid --target train/loss=0.3    the same for any recorded quality, losses from above
  fedcomp-report outputs/mnist --against bicompfl        ours beside the paper's tables, with the difference
  fedcomp-report outputs/grid --front                    what nothing else beats in both accuracy and bits
  fedcomp-report outputs/grid --wandb                    from W&B's files, and to W&B (key: WANDB_API_KEY)
  fedcomp-report outputs/grid --columns test_accuracy,bpp_uplink,seeds   only these columns

writes into DIR:
  table.md, table.csv, table.tex     mean ± deviation over seeds; LaTeX needs \\usepackage{booktabs}
  report.html                        one file, works offline: sortable table, curves to zoom and point at
  curves*.png, .pdf                  test accuracy and loss over uplink, downlink, total bits and rounds
  scatter.png, .pdf                  best accuracy against bits per parameter
  <name>.png, .pdf                   what the experiment's config asks for under `figures:`
  against.md, .csv, .tex             with --against
  front.png, .pdf, .md, .csv, .tex   with --front, and of searches with objective=pareto

Runs that are unfinished, failed, doubled or not finite are listed with the reason.
A label=... in a run's config names its method; others are named by the settings that differ.
exit status: 0 written, 1 no finished run, 2 a wrong argument (one line on standard error)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, list the runs that are not in them, write files.

    Args:
        argv: paths and options; None for the command line's.

    Returns:
        The exit status: 0, 1 if there is no finished run, 2 after one line on standard error.
    """
    parser = argparse.ArgumentParser(
        prog="fedcomp-report",
        description="Runs that differ by their seed alone are one row: tables, curves against bits, one HTML page.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a run's folder, or one that holds runs (outputs/)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: report/ in the first PATH)")
    parser.add_argument(
        "--target", metavar="[METRIC=]VALUE", help="how good a run must get; accuracies as fractions, 0.9"
    )
    parser.add_argument("--against", metavar="PAPER", help="figures a paper printed: bicompfl, fedmrn")
    parser.add_argument("--front", action="store_true", help="the front of accuracy and bits, and its hypervolume")
    parser.add_argument("--wandb", action="store_true", help="read W&B's files, and write the report to W&B too")
    parser.add_argument("--every-picture", action="store_true", help="draw all PNG and PDF, however many")
    parser.add_argument(
        "--columns",
        metavar="NAME,...",
        help="columns of the tables, in this order: test_accuracy,bpp_uplink (their names in table.csv, which has all, "
        "and seeds); without: all, in LaTeX and HTML those that fit",
    )
    given = parser.parse_intermixed_args(argv)  # --out DIR may stand between two paths
    from fedcomp.reporting.build import report  # takes a second
    from fedcomp.reporting.content import Options

    return exit_status(lambda: report(Options(**vars(given))))  # the options have the same names


if __name__ == "__main__":
    sys.exit(main())
