"""Run a paper's experiments, keep their records, write the page of its results."""

import argparse
import importlib
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

from fedcomp.runtime.device_name import device_name
from scripts.arguments import folder, positive
from scripts.reproduce import estimate
from scripts.reproduce.curves import draw_curves
from scripts.reproduce.experiment import Command, Ended, Experiment, pass_on_signals, report, run
from scripts.reproduce.history import strangers
from scripts.reproduce.markdown import what_was_run
from scripts.reproduce.order import PAPERS, of_turn, ordered
from scripts.reproduce.records import Folder
from scripts.reproduce.sequences import run_sequences, to_do

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, write.

    Returns: 0; 1 if runs failed or a page is refused; 3 if the budget was spent, or a signal came, before the end.
    """
    parser = argparse.ArgumentParser(prog="make reproduce", description=__doc__)
    parser.add_argument("paper", choices=[*PAPERS, "all"])
    parser.add_argument(
        "--scale",
        choices=["small", "paper", "trial"],
        default="small",
        help="small: minutes; paper: its rounds; trial: two rounds of each of the paper's runs",
    )
    parser.add_argument("--budget", type=hours, default=float("inf"), metavar="HOURS", help="stop after so many hours")
    parser.add_argument("--device", default="auto", help="of all runs, as fedcomp's device=: auto, cpu, cuda")
    parser.add_argument(
        "--at-once", type=positive, default=1, metavar="N", help="runs of an experiment at once on the device"
    )
    parser.add_argument("--estimate", action="store_true", help="print the hours at the paper's scale, run only trials")
    parser.add_argument("--page-only", action="store_true", help="write the page from the records, run nothing")
    parser.add_argument("--outputs", type=folder, default=Path("outputs"), help="where runs lie")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 3600 * options.budget
    names = PAPERS if options.paper == "all" else (options.paper,)
    trial = options.outputs / "trial"
    place = {"small": options.outputs / "reproduce", "paper": ROOT / "docs" / "results", "trial": trial}[options.scale]
    if not options.page_only and (
        options.estimate or options.scale == "trial" or (options.scale, options.paper) == ("paper", "all")
    ):
        ended = tried(names, options.device, trial, deadline)
        if options.estimate or ended is Ended.STOPPED:
            return _status(ended)
    ended = Ended.FINISHED
    if not options.page_only and options.scale != "trial":
        ended = run_experiments(names, options.scale, options.outputs, place, deadline, options.device, options.at_once)
    refusals = [name for name in names if not written(name, options.scale, place)]
    if refusals:
        return 1
    if ended is Ended.FAILED:
        print(f"Some runs failed; `fedcomp-status {options.outputs}` shows them.")
    return _status(ended)


def _status(ended: Ended) -> int:
    if ended is Ended.STOPPED:
        print("Stopped before the end; the same command goes on from there.")
    return {Ended.FINISHED: 0, Ended.FAILED: 1, Ended.STOPPED: 3}[ended]


def tried(names: Sequence[str], device: str, place: Path, deadline: float) -> Ended:
    """Two rounds of each run that has none yet, and the table of hours, which is kept in `place`.

    Returns: FAILED if nothing of some command ran, as where its data are missing.
    """
    experiments = [(name, one, estimate.trials(one, device)) for name, one in ordered(names)]
    cut = device_name(device) == "cpu"
    ended = Ended.FINISHED
    for _, experiment, planned in experiments:
        if time.monotonic() > deadline:
            ended = Ended.STOPPED
            break
        estimate.measure(experiment, planned, cut, place)
    hours = estimate.table(experiments, place)
    if ended is Ended.FINISHED and "not tried" in hours:
        ended = Ended.FAILED
    print(hours, flush=True)
    place.mkdir(parents=True, exist_ok=True)
    (place / "estimate.md").write_text(hours + "\n", encoding="utf-8")
    return ended


def options_of(device: str, at_once: int) -> list[str]:
    """The overrides of every run that say where it computes: on which device, and beside how many others."""
    found = [] if device == "auto" else [f"device={device}"]
    if at_once > 1:
        found += ["launcher=joblib", f"launcher.n_jobs={at_once}", f"launcher.runs_per_gpu={at_once}"]
    return found


def run_experiments(
    names: Sequence[str],
    scale: str,
    outputs: Path,
    place: Path,
    deadline: float,
    device: str = "auto",
    at_once: int = 1,
) -> Ended:
    """Run what is not finished, keep records and pictures; one seed of everything before the next seeds.

    Returns: the worst that became of a grid.
    """
    records = Folder(place / "records")
    worst = Ended.FINISHED

    def start(command: Command, share: int) -> Ended:
        return run([*command, f"output_root={outputs}", *options_of(device, share)], deadline)

    for later in (False, True):
        for name, experiment in ordered(names):
            folder = outputs / experiment.folder(scale)
            sequences = to_do(of_turn(one, later) for one in experiment.sequences(scale))
            if not sequences:
                continue
            experiment.prepare()
            ended = run_sequences(sequences, at_once, start, partial(records.update, experiment, folder))
            if ended is Ended.STOPPED:
                return ended
            worst = max(worst, ended)
            keep_pictures(experiment, folder, place)
            written(name, scale, place)
    return worst


def written(name: str, scale: str, place: Path) -> bool:
    """Write a page, unless its records name commits that nobody can look up: then a line says so."""
    paper = importlib.import_module(f"scripts.reproduce.{name}")
    if scale == "paper" and (refusal := refused(paper, Folder(place / "records"))):
        print(refusal, file=sys.stderr)
        return False
    write_page(paper, name, scale, place)
    return True


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
                "committed code"
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
    if scale != "paper":
        text = note(paper, scale) + text
    path.write_text(text, encoding="utf-8")
    print(f"The page: {os.path.relpath(path)}")


def note(paper: ModuleType, scale: str) -> str:
    """What stands before a page whose runs are smaller than those it names; of `small` their commands."""
    if scale == "trial":
        return "Two rounds of each run (`SCALE=trial`): verdicts are of these, and mean nothing.\n\n"
    head = "Fewer rounds and repetitions than the paper's (`SCALE=small`): verdicts are of these runs, and no more."
    lines = [head, ""]
    lines += [f"- `fedcomp {' '.join(overrides)}`" for one in paper.EXPERIMENTS for overrides in one.overrides("small")]
    return "\n".join(lines) + "\n\n"


def page_text(paper: ModuleType, folder: Folder) -> str:
    """The page, what was run after its title, with one empty line where parts without runs leave several."""
    title, _, text = paper.page(folder).strip().partition("\n")
    run = what_was_run([folder[experiment] for experiment in paper.EXPERIMENTS])
    return re.sub(r"\n{3,}", "\n\n", f"{title}\n\n{run}\n{text}") + "\n"


def hours(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} must be above 0 hours")
    return number


if __name__ == "__main__":
    pass_on_signals()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(_status(Ended.STOPPED))
