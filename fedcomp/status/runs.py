"""The state of every run under a folder, read fast: no record is parsed whole, no config twice.

A thousand runs of a hundred evaluations take about a second.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedcomp.launcher.contract import MANIFEST
from fedcomp.launcher.jobs import noted_jobs
from fedcomp.records import metrics_file as record
from fedcomp.records import status
from fedcomp.records.provenance import read_provenance
from fedcomp.records.run_folder import CONFIG, held
from fedcomp.report.labels import without_rooms
from fedcomp.status import slurm
from fedcomp.status.slurm import Job

State = Literal[
    "done",
    "running",
    "requeued",
    "waiting",
    "not started",
    "interrupted",
    "preempted",
    "cancelled",
    "killed",
    "failed",
]
"""In the order that they are listed in."""

GOING = ("running", "requeued", "waiting", "not started")
"""States that something is still to come after, without anybody's doing."""

ACCURACY = re.compile(rb'"test/accuracy": ([-+.\deE]+)')
RESUME = "the same command goes on"


@dataclass(frozen=True)
class RunState:
    """How far one run is.

    Attributes:
        folder: where it lies. seed: of its name `seed=<n>`.
        config: resolved; empty before the run has begun. overrides: what a grid gave it, in one line.
        state: `killed` is a run that says it is running while no process holds its folder. As Slurm says: `waiting`
            has a job and has not begun; `requeued` has begun and goes on when its job runs again; `preempted` and
            `cancelled` were ended so and do not go on by themselves.
        round: rounds completed, of `rounds` (0: not known yet).
        best: the best test accuracy so far, a fraction; None if there is none.
        seconds_left: at the mean speed so far; None unless it is running and that is known.
        error: one line: why it failed, or what to do.
    """

    folder: Path
    seed: int | None
    config: dict[str, Any]
    overrides: str
    state: State
    round: int = 0
    rounds: int = 0
    best: float | None = None
    seconds_left: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Found:
    """The runs under a folder. `problem`: one line, if Slurm is there and did not answer."""

    runs: list[RunState]
    problem: str | None = None


def find(root: Path) -> list[RunState]:
    """The runs of `look`."""
    return look(root).runs


def look(root: Path) -> Found:
    """Every run under `root`, in the order of the paths; runs that a grid lists and that have not begun come last.

    Raises:
        ValueError: there is no such folder, or no run in it.
    """
    if not root.is_dir():
        raise ValueError(f"{root} is no folder; give the folder of one run, or one that holds runs (outputs/)")
    folders, manifests = [], []
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if status.FILE in files or record.FILE in files:
            folders.append(Path(folder))
            inner.clear()
        if MANIFEST in files:
            manifests.append(Path(folder))
            inner.clear()
    configs: dict[Path, dict[str, Any]] = {}
    found = [_read(folder, configs) for folder in folders]
    known = {folder.resolve() for folder in folders}
    for listed, words, config in _listed(manifests):
        if config is not None:
            configs.setdefault(listed.parent, config)
        if listed not in known:
            begun = (listed / status.FILE).exists()  # where `root` is a grid's own folder
            found.append(_read(listed, configs) if begun else _waiting(listed, words, configs))
    if not found:
        raise ValueError(f"no run found under {root}: a run is a folder that holds {status.FILE}")
    return _with_jobs(found, manifests)


def _read(folder: Path, configs: dict[Path, dict[str, Any]]) -> RunState:
    try:
        now = status.read_status(folder)
        config = _config(folder, configs)
        last, best = _record(folder / record.FILE)
    except ValueError as unreadable:
        return RunState(folder, _seed(folder), {}, "", "failed", error=str(unreadable))
    state: State = "running"
    if now is not None and now.state != "running":
        state = "done" if now.state == "finished" else now.state
    elif not held(folder):
        state = "killed"
    rounds = int(config.get("rounds", 0))
    round_ = now.round if now is not None else int(last.get("round", 0))
    left = None
    if state == "running" and last.get("round"):
        left = last["seconds"] / last["round"] * max(0, rounds - round_)
    error = now.error if now is not None else None
    if state == "killed":
        error = f"killed after round {round_}; {RESUME}"
    return RunState(folder, _seed(folder), config, "", state, round_, rounds, best, left, error)


def _waiting(folder: Path, overrides: str, configs: dict[Path, dict[str, Any]]) -> RunState:
    config = configs.get(folder.parent, {})
    return RunState(folder, _seed(folder), config, overrides, "not started", rounds=int(config.get("rounds", 0)))


def _with_jobs(runs: list[RunState], grids: Iterable[Path]) -> Found:
    """The same runs; those that have not ended as Slurm says, where there is a Slurm."""
    submitted: dict[Path, list[str]] = {}
    for grid in grids:
        for folder, job in noted_jobs(grid):
            submitted.setdefault(folder, []).append(job)
    names = {run.folder: _jobs(run, submitted) for run in runs if run.state != "done"}
    answer = slurm.ask(name for own in names.values() for name in own)
    of = {folder: [answer.jobs[name] for name in own if name in answer.jobs] for folder, own in names.items()}
    return Found([judged(run, of.get(run.folder, [])) for run in runs], answer.problem)


def _jobs(run: RunState, submitted: dict[Path, list[str]]) -> list[str]:
    """A run's jobs, the last one last: those that a grid gave it, and the one that its last session ran in."""
    own = submitted.get(run.folder.resolve(), [])
    if run.state == "not started" or own:
        return own
    try:
        kept = read_provenance(run.folder)
    except ValueError:
        return []  # the run itself will say so
    job = kept.sessions[-1].job if kept is not None and kept.sessions else None
    return [job] if job is not None else []


def judged(run: RunState, jobs: list[Job]) -> RunState:
    """What a run that has not ended is, as its own files say (`run`) and as Slurm says of its jobs."""
    if run.state == "done" or not jobs:
        return run
    job = next((one for one in jobs if one.pending or one.active), jobs[-1])
    begun = run.state != "not started"
    if job.pending:
        return replace(run, state="requeued" if begun else "waiting", error=None)
    if job.active:
        if not begun:
            return replace(run, state="waiting")
        leaving = run.state == "interrupted"  # or about to go on
        again = run.state == "killed" and job.start is not None and job.start.timestamp() > _last_word(run.folder)
        return replace(run, state="requeued", error=None) if leaving or again else run
    if run.state in ("failed", "running"):
        return run
    where = f" after round {run.round}" if begun else ""
    if job.state in ("PREEMPTED", "CANCELLED"):
        ended: State = "preempted" if job.state == "PREEMPTED" else "cancelled"
        return replace(run, state=ended, error=f"job {job.name} was {ended}{where}; {RESUME}")
    if run.state == "interrupted" or (begun and job.state == "COMPLETED"):  # whose other runs went on
        return run
    return replace(run, state="killed", error=f"job {job.name} ended{where or ' before it'}: {job.state}; {RESUME}")


def _last_word(folder: Path) -> float:
    try:
        return (folder / status.FILE).stat().st_mtime
    except OSError:
        return 0.0


def _listed(grids: Iterable[Path]) -> Iterator[tuple[Path, str, dict[str, Any] | None]]:
    """(folder, overrides, config) of runs that grids list, each folder once; a half-written last line is passed over.

    A grid gives the config of the first run of each method; None with the others, and in a grid of an earlier fedcomp.
    """
    seen = set()
    for grid in grids:
        for raw in (grid / MANIFEST).read_bytes().split(b"\n")[:-1]:
            line = json.loads(raw)
            folder = (grid / line["folder"]).resolve()
            if folder not in seen:
                seen.add(folder)
                yield folder, " ".join(line["overrides"]), line.get("config")


def _config(folder: Path, configs: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    """The resolved config, read once for all seeds: they share the folder that is named after its hash."""
    import yaml

    if folder.parent not in configs:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is 10 times faster
        try:
            configs[folder.parent] = yaml.load((folder / CONFIG).read_bytes(), Loader=loader) or {}
        except FileNotFoundError:
            return {}
        except yaml.YAMLError as error:
            raise ValueError(f"{folder / CONFIG} is no YAML: {' '.join(str(error).split())}") from error
        except OSError as error:
            raise ValueError(f"cannot read {folder / CONFIG}: {error.strerror}") from error
        if not isinstance(configs[folder.parent], dict):
            del configs[folder.parent]
            raise ValueError(f"{folder / CONFIG} is no config: it must be a mapping")
        configs[folder.parent] = without_rooms(configs[folder.parent])
    return configs[folder.parent]


def _record(path: Path) -> tuple[dict[str, float], float | None]:
    """The last whole line of a record, and the best accuracy in it."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    best = max(map(float, ACCURACY.findall(content)), default=None)
    try:
        return (json.loads(lines[-1]) if lines else {}), best
    except ValueError as error:
        raise ValueError(f"{path}: the last line is no record: {lines[-1][:60]!r}") from error


def _seed(folder: Path) -> int | None:
    match = re.fullmatch(r"seed=(\d+)", folder.name)
    return int(match[1]) if match else None
