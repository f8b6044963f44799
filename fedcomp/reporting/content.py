"""What a report shows, before anything is printed or written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from fedcomp.display.metric import Metric
from fedcomp.records.reader import RecordedRun
from fedcomp.reporting import notes, pareto
from fedcomp.reporting.group import RunGroup
from fedcomp.reporting.labels import distinct
from fedcomp.reporting.made_with import made_with
from fedcomp.reporting.metrics import qualities
from fedcomp.reporting.pictures import curves, figures
from fedcomp.reporting.pictures.picture import MAX_LINES, Picture, split
from fedcomp.reporting.tables import against, formats, latex, published, table
from fedcomp.reporting.tables.rows import Rows
from fedcomp.reporting.tables.target import parse_target

MAX_PANELS, FIRST_PANELS = 96, 48
"""Of more than MAX_PANELS panels, the pictures within the first FIRST_PANELS are drawn for print, which show every
setting once; the page shows all. A panel takes 0.1 s to draw."""

Notes = list[tuple[str, list[str]]]
"""(heading, lines)."""


@dataclass(frozen=True)
class Options:
    """What a report is made of.

    Attributes:
        paths: folders of runs, or that hold some.
        out: where to write; None: report/ in the first path.
        target: `0.9`, `test/loss=0.3`; None: no column for it.
        against: a paper's name, or a method's; None: no comparison.
        paper_counts: show the papers' counts of bits beside the true ones.
        every_picture: draw for print all pictures, however many panels they have.
        columns: `test_accuracy,bits_total`: those of the tables; None: all, in LaTeX and HTML those that fit.
        front: show the front of accuracy and bits, also of runs that were not made with `objective=pareto`.
        one_process: draw in this process. Others would import the script that called, and run it.
        wandb: read W&B's files instead of the runs' own, and write the report to W&B too.
        figures: entries as of a config's `figures:`, of all runs.
        order: methods that come first. rename: {method: another name}.
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
    figures: Sequence[Mapping[str, Any]] = ()
    paper_counts: bool = True
    order: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """All that is printed and written.

    Attributes:
        name: of the folders.
        results, in_print: the table with the columns that `columns` chooses, with those of LaTeX.
        pictures: of the page. on_paper: the same cut up for print, as many as are drawn.
        further: {name of its files: (table, the same as Markdown)}, of a comparison and of the fronts.
        remarks: what stands beside the table.
    """

    name: str
    results: Rows
    in_print: Rows
    pictures: list[Picture]
    on_paper: list[Picture]
    further: dict[str, tuple[Rows, str]]
    remarks: Notes


def collect(options: Options, runs: Sequence[RecordedRun], groups: Sequence[RunGroup]) -> Content:
    """Tables, pictures and remarks. Raises ValueError: an unknown target, column or paper, or no such figure."""
    target = parse_target(options.target, groups) if options.target else None
    further = {"against": compared(groups, options.against)} if options.against else {}
    whole = table.build(groups, target, options.paper_counts)
    results = whole.named(options.columns) if options.columns is not None else whole
    judged = qualities(run for one in groups for run in one.runs)
    remarks = remarks_on(runs, groups, judged)
    pictures, sheets, more = _pictures(groups, judged, options.figures)
    if more:
        remarks.append(("Figures", more))
    fronts = pareto.fronts(groups, options.front)
    if fronts:
        further["front"] = pareto.rows(fronts), pareto.to_markdown(fronts)
        drawn = pareto.picture(fronts)
        pictures, sheets = [drawn, *pictures], [*split(drawn), *sheets]
        remarks.append(("Front of accuracy and bits", pareto.lines(fronts)))
    elif options.front:
        remarks.append(("Front of accuracy and bits", ["no method has a test/accuracy and has sent bits"]))
    on_paper = sheets if options.every_picture else affordable(sheets)
    if len(on_paper) < len(sheets):
        number = f"{len(on_paper)} of {len(sheets)} pictures are drawn for print"
        remarks.append(("Pictures", [f"{number}; report.html shows all, --every-picture draws all"]))
    name = " and ".join(dict.fromkeys(Path(path).resolve().name for path in options.paths))
    in_print = results if options.columns is not None else latex.fitting(whole)
    return Content(name, results, in_print, pictures, on_paper, further, remarks)


def compared(groups: Sequence[RunGroup], other: str) -> tuple[Rows, str]:
    """The groups beside a method or a paper of this name, as a table and as Markdown. Raises ValueError: no such."""
    methods = list(dict.fromkeys(one.label for one in groups))
    if other in methods:
        rows = against.rows(groups, other)
        return rows, f"{formats.to_markdown(rows)}\n{rows.caption}\n"
    pairs = published.compare(groups, published.load(other, methods))
    unmatched = published.without_counterpart(groups, pairs)
    return published.rows(other, pairs, unmatched), published.to_markdown(other, pairs, unmatched)


def remarks_on(runs: Sequence[RecordedRun], groups: Sequence[RunGroup], judged: Sequence[Metric]) -> Notes:
    """What stands beside the table: runs that are not in it, values that are no numbers, gaps."""
    missing = [notes.describe(*one) for one in notes.left_out(runs, groups)]
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


def _pictures(
    groups: Sequence[RunGroup], judged: Sequence[Metric], entries: Sequence[Mapping[str, Any]]
) -> tuple[list[Picture], list[Picture], list[str]]:
    """Pictures for the page, the same cut up for print, and remarks on those that could not be made."""
    requested, remarks = figures.pictures(groups)
    requested = [*(figures.asked_picture(entry, groups) for entry in entries), *requested]
    drawn = curves.curves(groups, judged)
    overview, scatter = (
        [picture] if judged and (picture := make(groups, judged[0])) is not None else []
        for make in (curves.overview, curves.scatter)
    )
    first = overview or drawn[:1]  # what stands first is drawn even if not all can be
    sheets = [
        sheet for one in [*requested, *first, *scatter, *(drawn if overview else drawn[1:])] for sheet in split(one)
    ]
    if any(len(one.labels) > MAX_LINES for one in [*requested, *overview, *scatter, *drawn]):
        remarks.append(f"more than {MAX_LINES} methods cannot be told apart: such pictures are split into several")
    names = distinct([sheet.name for sheet in sheets])
    sheets = [replace(sheet, name=name.replace(" #", "-")) for sheet, name in zip(sheets, names)]
    return [*requested, *drawn, *scatter], sheets, remarks
