"""The state of every run under a folder, read fast: no record is parsed whole, no config twice.

A thousand runs of a hundred evaluations take about a second.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedcomp.launcher.slurm_jobs import Job, job_states
from fedcomp.records import status
from fedcomp.records.grid import listed_runs, noted_jobs
from fedcomp.records.reader import RunFiles, find_runs, without_rooms

State = Literal[
    "done", "running", "requeued", "waiting", "not started", "interrupted", "preempted", "cancelled", "killed", "failed"
]
"""In the order in which they are listed."""

GOING = ("running", "requeued", "waiting", "not started")
"""States that change without the user doing anything."""

RESUME = "the same command resumes it"


@dataclass(frozen=True)
class RunState:
    """How far one run is.

    Attributes:
        folder: where it lies. seed: of its name `seed=<n>`.
        config: resolved; empty before the run has begun. overrides: of its grid, in one line.
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
class RunStates:
    """The runs under a folder. `problem`: one line, if Slurm is there and did not answer."""

    runs: list[RunState]
    problem: str | None = None


def run_states(root: Path) -> RunStates:
    """Every run under `root`, in the order of the paths; runs that a grid lists and that have not begun come last.

    Raises ValueError: there is no such folder, or no run in it.
    """
    below, top = find_runs([root]), root.resolve()
    configs: dict[Path, dict[str, Any]] = {}
    found = [_read(files, configs) for files in below.runs.values()]
    for listed, words, config in listed_runs(below.grids):
        folder = root / listed.relative_to(top) if listed.is_relative_to(top) else listed
        if config is not None:
            configs.setdefault(folder.parent, without_rooms(config))
        if not below.runs.keys() & {listed, *listed.parents}:  # that may be unreadable
            files = RunFiles(folder)  # it has begun where `root` is a grid's own folder
            if files.begun:
                found.append(_read(files, configs))
                continue
            own = configs.get(folder.parent, {})
            waiting = RunState(folder, files.seed, own, words, "not started", rounds=int(own.get("rounds", 0)))
            found.append(waiting)
    if not found:
        raise ValueError(f"no run found under {root}: a run is a folder that holds {status.FILE}")
    return _with_jobs(found, below.grids)


def _read(files: RunFiles, configs: dict[Path, dict[str, Any]]) -> RunState:
    try:
        now = files.status()
        config = _config(files, configs)
        last, best = files.latest()
    except ValueError as unreadable:
        return RunState(files.folder, files.seed, {}, "", "failed", error=str(unreadable))
    state: State = "running"
    if now is not None and now.state != "running":
        state = "done" if now.state == "finished" else now.state
    elif not files.held:
        state = "killed"
    rounds = int(config.get("rounds", 0))
    round_ = now.round if now is not None else int(last.get("round", 0))
    left = None
    if state == "running" and last.get("round", 0) > 1 and "seconds" in last:  # the first round may have compiled
        left = last["seconds"] / last["round"] * max(0, rounds - round_)
    error = now.error if now is not None else None
    if state == "killed":
        error = f"killed after round {round_}; {RESUME}"
    return RunState(files.folder, files.seed, config, "", state, round_, rounds, best, left, error)


def _config(files: RunFiles, configs: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    """The run's config. Seeds share the folder named after its hash, so it is read once for all of them."""
    shared = files.folder.parent
    if shared not in configs:
        config = files.config()
        if config is None:
            return {}
        configs[shared] = config
    return configs[shared]


def _with_jobs(runs: list[RunState], grids: Iterable[Path]) -> RunStates:
    """The runs; if Slurm is installed, its jobs correct their states."""
    submitted: dict[Path, list[str]] = {}
    for grid in grids:
        for folder, job in noted_jobs(grid):
            submitted.setdefault(folder, []).append(job)
    names = {run.folder: _job_names(run, submitted) for run in runs if run.state != "done"}
    answer = job_states(name for own in names.values() for name in own)

    def jobs_of(run: RunState) -> list[Job]:
        return [answer.jobs[name] for name in names.get(run.folder, ()) if name in answer.jobs]

    return RunStates([with_job_state(run, jobs_of(run)) for run in runs], answer.problem)


def _job_names(run: RunState, submitted: dict[Path, list[str]]) -> list[str]:
    """The jobs that a grid gave to a run, in their order; without a grid, the job of the run's last session."""
    own = submitted.get(run.folder.resolve(), [])
    if run.state == "not started" or own:
        return own
    try:
        kept = RunFiles(run.folder).provenance()
    except ValueError:
        return []  # the run's own row shows the error
    job = kept.sessions[-1].job if kept is not None and kept.sessions else None
    return [job] if job is not None else []


def with_job_state(run: RunState, jobs: list[Job]) -> RunState:
    """The run, its state corrected by the state of its jobs."""
    if run.state == "done" or not jobs:
        return run
    job = next((one for one in jobs if one.pending or one.active), jobs[-1])
    begun = run.state != "not started"
    if job.pending:
        return replace(run, state="requeued" if begun else "waiting", error=None)
    if job.active:
        if not begun:
            return replace(run, state="waiting")
        leaving = run.state == "interrupted"  # or it is about to resume
        again = run.state == "killed" and job.start is not None and job.start.timestamp() > _status_time(run.folder)
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


def _status_time(folder: Path) -> float:
    try:
        return (folder / status.FILE).stat().st_mtime
    except OSError:
        return 0.0
