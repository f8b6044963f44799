"""Run a paper's experiments, keep their records, write the page of its results."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import sys
import time
from pathlib import Path
from types import ModuleType

from scripts.reproduce.curves import draw_curves
from scripts.reproduce.experiment import Ended, Experiment, report, run
from scripts.reproduce.history import strangers
from scripts.reproduce.markdown import what_was_run
from scripts.reproduce.records import Folder

PAPERS = (
    "fedscalar",
    "rand_k",
    "bicompfl",
    "fedmrn",
    "fedavg_svrg",
    "same_bits",
    "seconds",
    "neighbours",
    "fine_tuning",
)
ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, write.

    Returns: 0; 1 if runs failed or a page is refused; 3 if the budget was spent, or a signal came, before the end.
    """
    parser = argparse.ArgumentParser(prog="make reproduce", description=__doc__)
    parser.add_argument("paper", choices=[*PAPERS, "all"])
    parser.add_argument(
        "--scale", choices=["small", "paper"], default="small", help="small: minutes; paper: its rounds"
    )
    parser.add_argument("--budget", type=_hours, default=float("inf"), metavar="HOURS", help="stop after so many hours")
    parser.add_argument("--page-only", action="store_true", help="write the page from the records, run nothing")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="where runs lie")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 3600 * options.budget
    ended = Ended.FINISHED
    for name in PAPERS if options.paper == "all" else [options.paper]:
        paper = importlib.import_module(f"scripts.reproduce.{name}")
        place = ROOT / "docs" / "results" if options.scale == "paper" else options.outputs / "reproduce"
        if not options.page_only:
            ended = max(ended, run_experiments(paper, options.scale, options.outputs, place, deadline))
        if options.scale == "paper" and (refusal := refused(paper, Folder(place / "records"))):
            print(refusal, file=sys.stderr)
            return 1
        write_page(paper, name, options.scale, place)
        if ended is Ended.STOPPED:
            print("Stopped before the end; the same command goes on from there.")
            break
    if ended is Ended.FAILED:
        print(f"Some runs failed; `fedcomp-status {options.outputs}` shows them.")
    return {Ended.FINISHED: 0, Ended.FAILED: 1, Ended.STOPPED: 3}[ended]


def run_experiments(paper: ModuleType, scale: str, outputs: Path, place: Path, deadline: float) -> Ended:
    """Run what is not finished, keep records and pictures. Returns: the worst that became of a grid."""
    records = Folder(place / "records")
    worst = Ended.FINISHED
    for experiment in paper.EXPERIMENTS:
        folder = outputs / experiment.folder(scale)
        for overrides in experiment.overrides(scale):
            worst = max(worst, run([*overrides, f"output_root={outputs}"], deadline))
            records.update(experiment, folder)
            if worst is Ended.STOPPED:
                return worst
        keep_pictures(experiment, folder, place)
    return worst


def keep_pictures(experiment: Experiment, folder: Path, place: Path) -> None:
    """Draw the experiment's pictures of its finished runs and copy them beside the page."""
    if not folder.is_dir():
        return
    if experiment.pictures:
        drawn = folder / "report"
        report(folder, drawn)
        for name, file in experiment.pictures.items():
            if (drawn / f"{name}.png").exists():
                shutil.copyfile(drawn / f"{name}.png", place / file)
    if experiment.draw is not None:
        experiment.draw(folder, place)


def refused(paper: ModuleType, records: Folder) -> str:
    """Why the paper's page is not written: its records name commits that nobody can look up; nothing if all can."""
    lines = []
    for experiment in paper.EXPERIMENTS:
        for commit in strangers(records[experiment].values("commit"), ROOT):
            runs = records.path / f"{experiment.name}.runs.csv"
            lines.append(
                f"{os.path.relpath(runs)} names commit {commit}, which is no ancestor of HEAD: run these again from "
                "committed code, or add it to LOST in scripts/reproduce/history.py, and the page says so"
            )
    return "\n".join(lines)


def write_page(paper: ModuleType, name: str, scale: str, place: Path) -> None:
    """Write `<paper>.md` and its curves from the records."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}.md"
    records = Folder(place / "records")
    for experiment in paper.EXPERIMENTS:
        for quality, file in experiment.curves.items():
            draw_curves(records[experiment], quality, place / file)
    if hasattr(paper, "draw"):
        paper.draw(records, place)
    text = page_text(paper, records)
    if scale == "small":
        text = small_note(paper) + text
    path.write_text(text, encoding="utf-8")
    print(f"The page: {os.path.relpath(path)}")


def small_note(paper: ModuleType) -> str:
    """What stands before a page whose runs are smaller than those it names: their commands."""
    head = "Fewer rounds and repetitions than the paper's (`SCALE=small`): verdicts are of these runs, and no more."
    lines = [head, ""]
    lines += [f"- `fedcomp {' '.join(overrides)}`" for one in paper.EXPERIMENTS for overrides in one.overrides("small")]
    return "\n".join(lines) + "\n\n"


def page_text(paper: ModuleType, folder: Folder) -> str:
    """The page, what was run after its title, with one empty line where parts without runs leave several."""
    title, _, text = paper.page(folder).strip().partition("\n")
    run = what_was_run([folder[experiment] for experiment in paper.EXPERIMENTS])
    return re.sub(r"\n{3,}", "\n\n", f"{title}\n\n{run}\n{text}") + "\n"


def _hours(text: str) -> float:
    hours = float(text)
    if not hours > 0:
        raise argparse.ArgumentTypeError(f"{text} must be above 0 hours")
    return hours


if __name__ == "__main__":
    sys.exit(main())
