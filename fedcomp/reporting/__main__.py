"""`fedcomp-report PATH...`, the same as `python -m fedcomp.reporting PATH...`: many runs as tables and figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcomp.runtime.command import command, exit_status

if TYPE_CHECKING:
    from fedcomp.reporting.content import Options

EPILOG = """\
examples:
  fedcomp-report outputs/quickstart                      all runs of one name, grouped over seeds
  fedcomp-report outputs/grid outputs/other --out paper  two names in one table, written to paper/
  fedcomp-report outputs/grid --target 0.9               rounds and bits until 90 % test accuracy
  fedcomp-report outputs/grid --target train/loss=0.3    the same for any recorded quality, losses from above
  fedcomp-report outputs/grid --against fedavg           differences to fedavg over the same seeds, with intervals
  fedcomp-report outputs/mnist --against bicompfl        ours beside the paper's tables, with the difference
  fedcomp-report outputs/grid --front                    what nothing else beats in both accuracy and bits
  fedcomp-report outputs/grid --wandb                    from W&B's files, and to W&B (key: WANDB_API_KEY)
  fedcomp-report outputs/grid --columns test_accuracy,bpp_uplink,seeds   only these columns
  fedcomp-report outputs/grid --order ours,sign --rename ours=FedX       rows and legends in this order, with this name
  fedcomp-report outputs/grid --figure x=uplink y=test/accuracy --size 3.3x2.2 --ylim 0.8:0.95 --legend "lower right"

writes into DIR:
  table.md, table.csv, table.tex     mean ± deviation over seeds; LaTeX needs \\usepackage{booktabs}
  report.html                        one file, works offline: sortable table, curves to zoom and point at
  curves*.png, .pdf                  test accuracy and loss over uplink, downlink, total bits and rounds
  scatter.png, .pdf                  best accuracy against bits per parameter
  <name>.png, .pdf                   what the experiment's config asks for under `figures:`; with a size, and a LaTeX
                                     installed, .pgf too
  figure.png, .pdf, .pgf             with --figure
  against.md, .csv, .tex             with --against
  front.png, .pdf, .md, .csv, .tex   with --front, and of searches with objective=pareto

Runs that are unfinished, failed, doubled or not finite are listed with the reason.
A label=... in a run's config names its method; others are named by the settings that differ.
exit status: 0 written, 1 no finished run, 2 a wrong argument (one line on standard error)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, list the runs that are not in them, write files. Returns the exit status."""
    parser = command(
        "fedcomp-report",
        "Runs that differ by their seed alone are one row: tables, curves against bits, one HTML page.",
        EPILOG,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a run's folder, or one that holds runs (outputs/)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: report/ in the first PATH)")
    parser.add_argument(
        "--target", metavar="[METRIC=]VALUE", help="how good a run must get; accuracies as fractions, 0.9"
    )
    parser.add_argument(
        "--against",
        metavar="NAME",
        help="a method: every other's difference to it over the same seeds, with its interval; or figures that a paper "
        "printed: bicompfl, fedmrn",
    )
    parser.add_argument(
        "--no-paper-counts", action="store_false", dest="paper_counts", help="without the papers' counts in brackets"
    )
    parser.add_argument("--front", action="store_true", help="the front of accuracy and bits, and its hypervolume")
    parser.add_argument("--wandb", action="store_true", help="read W&B's files, and write the report to W&B too")
    parser.add_argument("--every-picture", action="store_true", help="draw all PNG and PDF, however many")
    parser.add_argument(
        "--columns",
        metavar="NAME,...",
        help="columns of the tables, in this order: test_accuracy,bpp_uplink (their names in table.csv, which has all, "
        "and seeds); without: all, in LaTeX and HTML those that fit",
    )
    parser.add_argument("--order", metavar="NAME,...", help="methods that come first, in tables and pictures")
    parser.add_argument("--rename", action="append", metavar="OLD=NEW", help="another name of a method; several times")
    pictures = parser.add_argument_group("a picture for a paper")
    pictures.add_argument(
        "--figure",
        nargs="+",
        action="append",
        metavar="KEY=VALUE",
        help="x=uplink y=test/accuracy; x: uplink, downlink, total, rounds, seconds, a metric or an option; also "
        "name=, kind=, log_x=false, log_y=true: all keys of an entry of `figures:`",
    )
    pictures.add_argument("--size", metavar="WxH", help="inches, for instance 6.8x2.2 (default: 3.3x2.2, a column)")
    pictures.add_argument("--xlim", metavar="LOW:HIGH", help="ends of the x axis; one may be left out, as 1e6:")
    pictures.add_argument("--ylim", metavar="LOW:HIGH", help="ends of the y axis, accuracies as fractions")
    pictures.add_argument("--legend", metavar="PLACE", help="below (default), right, none, lower right, ...")
    given = vars(parser.parse_intermixed_args(argv))  # --out DIR may stand between two paths
    from fedcomp.reporting.build import report  # takes a second

    return exit_status(lambda: report(_options(given)))


def _options(given: dict[str, Any]) -> Options:
    """What the command line asks for. Raises ValueError: a --figure or --rename that cannot be understood."""
    from fedcomp.reporting.content import Options
    from fedcomp.reporting.pictures.figure_entry import asked

    style = {key: given.pop(key) for key in ("size", "xlim", "ylim", "legend")}
    words = given.pop("figure") or []
    paths = [*given.pop("paths"), *(word for own in words for word in own if "=" not in word)]  # that stood behind
    if not paths:
        raise ValueError("give a folder of runs: fedcomp-report outputs/quickstart")
    if not words and (unused := [f"--{key}" for key, value in style.items() if value is not None]):
        raise ValueError(f"{unused[0]} is for --figure, as in --figure x=uplink y=test/accuracy {unused[0]} ...")
    figures = [asked([word for word in own if "=" in word], number, **style) for number, own in enumerate(words, 1)]
    order = tuple(name.strip() for name in (given.pop("order") or "").split(",") if name.strip())
    rename = {}
    for word in given.pop("rename") or ():
        old, equals, new = word.rpartition("=")
        if not equals or not new.strip():
            raise ValueError(f"--rename {word}: give OLD=NEW, as fedavg=FedAvg")
        rename[old] = new
    return Options(paths, figures=figures, order=order, rename=rename, **given)  # the others have the same names


if __name__ == "__main__":
    sys.exit(main())
