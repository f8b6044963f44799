"""A report: runs are read, tables printed, files and pictures written."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.display import units
from fedcomp.display.console import redirect_to_null
from fedcomp.display.figure import latex as latex_program
from fedcomp.records.atomic_write import explained, write_atomically
from fedcomp.records.reader import read_runs
from fedcomp.reporting import notes, page
from fedcomp.reporting.content import Content, Notes, Options, collect
from fedcomp.reporting.group import arranged, group, in_command_order
from fedcomp.reporting.pictures.draw import draw
from fedcomp.reporting.pictures.picture import Picture
from fedcomp.reporting.tables import formats, latex
from fedcomp.reporting.tables.rows import Rows
from fedcomp.runtime.signals import restore_sigint
from fedcomp.tracking import wandb_files, wandb_workspace

if TYPE_CHECKING:
    from rich.console import Console

FEW_PANELS = 24
"""Up to so many panels one process is faster than several."""
SHOWN_LINES = 20
"""Lines of a list that the terminal shows; the files hold all."""


def report(options: Options) -> int:
    """Read, print, write.

    Returns:
        0, or 1 if no run is finished: then they are listed, and nothing is written.

    Raises:
        ValueError: in one line, what cannot be done: no run under the paths, nowhere to write, an unknown target.
    """
    pieces = wandb_files.read_pieces(options.paths) if options.wandb else []
    runs = wandb_files.recorded_runs(pieces) if options.wandb else read_runs(options.paths)
    groups = group(runs)
    console = _console()
    if not groups:
        _show(console, [("No finished run to report", [notes.describe(*one) for one in notes.left_out(runs, [])])])
        return 1
    in_order = groups if options.wandb else in_command_order(groups, options.paths)
    groups = arranged(in_order, options.order, options.rename)
    content = collect(options, runs, groups)
    out = options.out or Path(options.paths[0]) / "report"
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)

    _print(content, options, console)
    texts = _texts(content, options)
    for file, text in texts.items():
        write_atomically(out / file, text.encode())
    draw_all(content.on_paper, out, options.one_process)
    console.print(f"Written: {out}/", markup=False, soft_wrap=True)
    console.print(f"  {_written(content, len(texts['report.html'].encode()))}", markup=False, soft_wrap=True)
    if options.wandb:
        console.print(_published(pieces, content.name, texts["table.md"]), markup=False, soft_wrap=True)
    return 0


def _print(content: Content, options: Options, console: Console) -> None:
    """The tables and the remarks."""
    results = content.results
    if options.columns is None:  # width is scarce
        results = results.select([name for name in results.names if not name.startswith("late_")])
        results = formats.fitting(results, console.width, "; --columns chooses")
    for rows in (results, *(formats.fitting(rows, console.width) for rows, _ in content.further.values())):
        console.print(formats.to_rich(rows, console.width))
    _show(console, content.remarks)


def _texts(content: Content, options: Options) -> dict[str, str]:
    """{name of a file: its text}."""
    results, in_print = content.results, content.in_print
    left_out = [name for name in results.names if name not in in_print.names]
    texts = {
        "table.md": f"{formats.to_markdown(results)}\n{results.caption}\n{_markdown(content.remarks)}",
        "table.csv": formats.to_csv(results),
        "table.tex": latex.to_latex(in_print, left_out),
        "report.html": page.to_html(content.name, results, content.pictures, content.remarks, options.columns is None),
    }
    for name, (rows, markdown) in content.further.items():
        texts |= {f"{name}.csv": formats.to_csv(rows), f"{name}.tex": latex.to_latex(rows), f"{name}.md": markdown}
    return texts


def _written(content: Content, page_bytes: int) -> str:
    """The files, and what the terminal should say of them."""
    files = [
        "table.md",
        "table.csv",
        f"table.tex ({_in_print(content.results, content.in_print)})",
        *(f"{name}.md, .csv, .tex" for name in content.further),
        f"report.html ({page_bytes / 1e6:.1f} MB)",
        f"{len(content.on_paper)} pictures ({_endings(content.on_paper)}): "
        f"{_some([sheet.name for sheet in content.on_paper])}",
    ]
    return ", ".join(files)


def _endings(pictures: Sequence[Picture]) -> str:
    """The endings of the pictures' files, and why there is no .pgf."""
    for_paper = [picture.name for picture in pictures if picture.size]
    if not for_paper:
        return ".png, .pdf"
    if latex_program():
        return f".png, .pdf, .pgf of {_some(for_paper)}"
    return ".png, .pdf; .pgf needs a LaTeX, which is not installed"


def _published(pieces: Sequence[wandb_files.Piece], title: str, table: str) -> str:
    """Write the report to W&B, into the project of the latest piece; where it is, or why it is not there."""
    latest = next((piece for piece in reversed(pieces) if piece.project), pieces[-1])
    entity = os.environ.get("WANDB_ENTITY") or latest.entity
    try:
        addresses = wandb_workspace.publish(entity, latest.project, title, table)
    except ValueError as error:
        return f"Not written to W&B: {error}"
    return f"At W&B: {', '.join(addresses)}"


def draw_all(pictures: Sequence[Picture], out: Path, one_process: bool = False) -> None:
    """Each picture as PNG and PDF; many of them in several processes, unless it is to be one.

    Raises ValueError: a file cannot be written, or a process was killed.
    """
    processes = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)
    jobs = [(picture, [out / f"{picture.name}.{ending}" for ending in formats_of(picture)]) for picture in pictures]
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


def formats_of(picture: Picture) -> list[str]:
    """Endings of its files: for a paper's column LaTeX's own too, where a LaTeX is installed."""
    return ["png", "pdf", *(["pgf"] if picture.size and latex_program() else [])]


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


def _in_print(table: Rows, shown: Rows) -> str:
    """How much of the table LaTeX has, and whether that is wider than a page."""
    every, own, wide = len(table.names), len(shown.names), latex.table_width(shown)
    text = f"{own} of {every} columns: --columns chooses" if own < every else units.counted(every, "column")
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
    return QuietOnClosedPipe(highlight=False, emoji=False, soft_wrap=not tty, width=None if tty else formats.WIDE)


def _some(names: Sequence[str]) -> str:
    """The first few names, and that there are more."""
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
