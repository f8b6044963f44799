"""From run folders to everything a report consists of."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.display.console import redirect_to_null
from fedcomp.records.atomic_write import explained, write_atomically
from fedcomp.records.reader import RecordedRun, read_runs
from fedcomp.reporting import front, notes, page
from fedcomp.reporting.group import RunGroup, group
from fedcomp.reporting.labels import distinct
from fedcomp.reporting.metrics import qualities
from fedcomp.reporting.notes import made_with
from fedcomp.reporting.pictures import curves, figures
from fedcomp.reporting.pictures.draw import draw
from fedcomp.reporting.pictures.picture import MAX_LINES, Picture, shown_labels, split
from fedcomp.reporting.tables import columns, formats, latex, published, table
from fedcomp.reporting.tables.table import ResultTable
from fedcomp.reporting.tables.target import parse_target
from fedcomp.runtime.signals import restore_sigint
from fedcomp.tracking import wandb_files, wandb_workspace

if TYPE_CHECKING:
    from rich.console import Console

MAX_PANELS, FIRST_PANELS = 96, 48
"""Of more than MAX_PANELS panels, the pictures within the first FIRST_PANELS are drawn for print, which show every
setting once; the page shows all. A panel takes 0.1 s to draw."""
FEW_PANELS = 24
"""Up to so many panels one process is faster than several."""
SHOWN_LINES = 20
"""Lines of a list that the terminal shows; the files hold all."""

Notes = list[tuple[str, list[str]]]
"""(heading, lines)."""


@dataclass(frozen=True)
class Options:
    """What a report is made of.

    Attributes:
        paths: folders of runs, or that hold some.
        out: where to write; None: report/ in the first path.
        target: `0.9`, `test/loss=0.3`; None: no column for it.
        against: a paper's name; None: no comparison.
        every_picture: draw for print all pictures, however many panels they have.
        columns: `test_accuracy,bits_total`: those of the tables; None: all, in LaTeX and HTML those that fit.
        front: show the front of accuracy and bits, also of runs that were not made with `objective=pareto`.
        one_process: draw in this process. Others would import the script that called, and run it.
        wandb: read W&B's files instead of the runs' own, and write the report to W&B too.
    """

    paths: Sequence[str | Path]
    out: Path | None = None
    target: str | None = None
    against: str | None = None
    every_picture: bool = False
    columns: str | None = None
    front: bool = False
    one_process: bool = False
    wandb: bool = False


def report(options: Options) -> int:
    """Read, print, write.

    Returns:
        0, or 1 if no run is finished: then they are listed, and nothing is written.

    Raises:
        ValueError: in one line, what cannot be done: no run under the paths, nowhere to write, an unknown target.
    """
    printed = published.load(options.against) if options.against else []
    pieces = wandb_files.read_pieces(options.paths) if options.wandb else []
    runs = wandb_files.recorded_runs(pieces) if options.wandb else read_runs(options.paths)
    groups = group(runs)
    console = _console()
    if not groups:
        _show(console, [("No finished run to report", [notes.describe(*one) for one in notes.left_out(runs, [])])])
        return 1
    target = parse_target(options.target, groups) if options.target else None
    whole = table.build(groups, target)
    results = columns.named_columns(options.columns, whole) if options.columns is not None else whole
    out = options.out or Path(options.paths[0]) / "report"
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    remarks = remarks_on(runs, groups)
    pictures, sheets, more = _pictures(groups)
    if more:
        remarks.append(("Figures", more))
    fronts = front.fronts(groups, options.front)
    if fronts:
        drawn = front.picture(fronts)
        pictures, sheets = [drawn, *pictures], [*split(drawn), *sheets]
        remarks.append(("Front of accuracy and bits", front.lines(fronts)))
    elif options.front:
        remarks.append(("Front of accuracy and bits", ["no method has a test/accuracy and has sent bits"]))
    on_paper = sheets if options.every_picture else affordable(sheets)
    if len(on_paper) < len(sheets):
        number = f"{len(on_paper)} of {len(sheets)} pictures are drawn for print"
        remarks.append(("Pictures", [f"{number}; report.html shows all, --every-picture draws all"]))

    console.print(formats.to_rich(results, every_column=options.columns is not None))
    texts: dict[str, str] = {}
    if options.against:
        texts |= _against(options.against, published.compare(groups, printed), groups, console)
    if fronts:
        console.print(front.to_rich(fronts))
        texts |= {
            "front.md": front.to_markdown(fronts),
            "front.csv": front.to_csv(fronts),
            "front.tex": front.to_latex(fronts),
        }
    _show(console, remarks)
    in_print = results if options.columns is not None else latex.fitting(whole)
    name = " and ".join(dict.fromkeys(Path(path).resolve().name for path in options.paths))
    texts |= {
        "table.md": formats.to_markdown(results) + _markdown(remarks),
        "table.csv": formats.to_csv(whole),
        "table.tex": latex.to_latex(in_print, columns.left_out(results, in_print)),
        "report.html": page.to_html(name, results, pictures, remarks, options.columns is None),
    }
    for file, text in texts.items():
        write_atomically(out / file, text.encode())
    draw_all(on_paper, out, options.one_process)

    files = [
        "table.md",
        "table.csv",
        f"table.tex ({_in_print(results, in_print)})",
        *(["against.md, .csv, .tex"] if options.against else []),
        *(["front.md, .csv, .tex"] if fronts else []),
        f"report.html ({(out / 'report.html').stat().st_size / 1e6:.1f} MB)",
        f"{len(on_paper)} pictures (.png, .pdf): {_some([sheet.name for sheet in on_paper])}",
    ]
    console.print(f"Written: {out}/", markup=False, soft_wrap=True)
    console.print("  " + ", ".join(files), markup=False, soft_wrap=True)
    if options.wandb:
        said = _published(pieces, name, texts["table.md"])
        console.print(said, markup=False, soft_wrap=True)
    return 0


def _against(
    paper: str, pairs: Sequence[published.Pair], groups: Sequence[RunGroup], console: Console
) -> dict[str, str]:
    """Print the comparison with a paper. Returns {file: text} of what is to be written."""
    unmatched = published.without_counterpart(groups, pairs)
    titles, rows = published.cells(pairs)
    alone = sum(pair.ours is None for pair in pairs)
    missing = f"{alone} printed rows have no run of ours, {len(unmatched)} groups of ours are not printed"
    console.print(formats.rich_table(titles, rows, 4, f"Against {paper}: {missing}: against.md."))
    return {
        "against.md": published.to_markdown(paper, pairs, unmatched),
        "against.csv": published.to_csv(pairs),
        "against.tex": published.to_latex(paper, pairs),
    }


def _published(pieces: Sequence[wandb_files.Piece], title: str, table: str) -> str:
    """Write the report to W&B, into the project of the latest piece; where it is, or why it is not there."""
    entity = os.environ.get("WANDB_ENTITY") or pieces[-1].entity
    try:
        addresses = wandb_workspace.publish(entity, pieces[-1].project, title, table)
    except ValueError as error:
        return f"Not written to W&B: {error}"
    return f"At W&B: {', '.join(addresses)}"


def remarks_on(runs: Sequence[RecordedRun], groups: Sequence[RunGroup]) -> Notes:
    """What stands beside the table: runs that are not in it, values that are no numbers, gaps."""
    missing = [notes.describe(*one) for one in notes.left_out(runs, groups)]
    judged = qualities(run for one in groups for run in one.runs)
    found = [
        (f"Not in the table: {len(missing)} of {len(runs)} runs", missing),
        ("Values that are not finite", notes.not_finite(groups)),
        ("Not the same everywhere", notes.gaps(groups, judged)),
        ("Made with", made_with(groups)),
    ]
    return [(heading, lines) for heading, lines in found if lines]


def affordable(pictures: Sequence[Picture]) -> list[Picture]:
    """All of them, or of too many those that fit into FIRST_PANELS, one at least."""
    if sum(len(picture.panels) for picture in pictures) <= MAX_PANELS:
        return list(pictures)
    spent = list(accumulate(len(picture.panels) for picture in pictures))
    return [picture for picture, panels in zip(pictures, spent) if panels <= FIRST_PANELS] or list(pictures[:1])


def draw_all(pictures: Sequence[Picture], out: Path, one_process: bool = False) -> None:
    """Each picture as PNG and PDF; many of them in several processes, unless it is to be one.

    Raises:
        ValueError: a file cannot be written, or a process was killed.
    """
    processes = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)
    jobs = [(picture, [out / f"{picture.name}.png", out / f"{picture.name}.pdf"]) for picture in pictures]
    few = len(jobs) < 2 or sum(len(picture.panels) for picture in pictures) <= FEW_PANELS
    if processes == 1 or one_process or few:
        for job in jobs:
            draw(*job)
        return
    restore_sigint()
    context, ignored = get_context("spawn"), (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(min(processes, len(jobs)), context, signal.signal, ignored) as pool:
        try:
            list(pool.map(draw, *zip(*jobs)))
        except BrokenProcessPool as error:
            raise ValueError(
                f"a process that drew pictures was killed (out of memory?); the tables and report.html are in {out}, "
                "pictures may be missing: free memory, or give fewer folders at once, and run the same command again"
            ) from error


def _pictures(groups: Sequence[RunGroup]) -> tuple[list[Picture], list[Picture], list[str]]:
    """Pictures for the page, the same cut up for print, and remarks on those that could not be made."""
    judged = qualities(run for one in groups for run in one.runs)
    requested, remarks = figures.pictures(groups)
    drawn = curves.curves(groups, judged)
    overview, scatter = (
        [picture] if judged and (picture := make(groups, judged[0])) is not None else []
        for make in (curves.overview, curves.scatter)
    )
    first = overview or drawn[:1]  # what stands first is drawn even if not all can be
    sheets = [
        sheet for one in [*requested, *first, *scatter, *(drawn if overview else drawn[1:])] for sheet in split(one)
    ]
    if any(len(shown_labels(one.panels)) > MAX_LINES for one in [*requested, *overview, *scatter, *drawn]):
        remarks.append(f"more than {MAX_LINES} methods cannot be told apart: such pictures are split into several")
    names = distinct([sheet.name for sheet in sheets])
    sheets = [replace(sheet, name=name.replace(" #", "-")) for sheet, name in zip(sheets, names)]
    return [*requested, *drawn, *scatter], sheets, remarks


def _show(console: Console, remarks: Notes) -> None:
    """Headings and the first lines of each list."""
    for heading, lines in remarks:
        console.print(heading, markup=False)
        for line in lines[:SHOWN_LINES]:
            console.print(f"  {formats.one_line(line)}", markup=False, soft_wrap=True)
        if len(lines) > SHOWN_LINES:
            console.print(f"  and {len(lines) - SHOWN_LINES} more, all in table.md and report.html", markup=False)


def _markdown(remarks: Notes) -> str:
    """The lists under the Markdown table."""
    return "".join(
        f"\n{heading}\n\n" + "".join(f"- {formats.escape_markdown_line(line)}\n" for line in lines)
        for heading, lines in remarks
    )


def _in_print(table: ResultTable, shown: ResultTable) -> str:
    """How much of the table LaTeX has, and whether that is wider than a page."""
    every, own, wide = len(columns.names(table)), len(columns.names(shown)), latex.table_width(shown)
    text = f"{own} of {every} columns: --columns chooses" if own < every else f"{every} columns"
    if wide > latex.PAPER:
        text += f", about {wide:.0f} pt wide, where an article has {latex.PAPER:.0f}"
    return text


def _console() -> Console:
    """As wide as the terminal; where there is none, as wide as a table may be, so that no line is broken.

    If `| head` closes it, the rest is not shown, and the files are written all the same.
    """
    from rich.console import Console

    class QuietOnClosedPipe(Console):
        def on_broken_pipe(self) -> None:
            redirect_to_null(sys.stdout)

    tty = sys.stdout.isatty()
    return QuietOnClosedPipe(highlight=False, emoji=False, soft_wrap=not tty, width=None if tty else 400)


def _some(names: Sequence[str]) -> str:
    """The first few names, and that there are more."""
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
