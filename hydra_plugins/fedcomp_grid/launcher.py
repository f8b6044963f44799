"""Hydra's launcher: composes the runs of a grid, skips finished ones, and passes the others to `fedcomp.launcher`."""

import copy
import os
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from fedcomp.config import schema
from fedcomp.config.effects import check_effects
from fedcomp.config.errors.hydra_errors import error_message
from fedcomp.config.instantiate import build, build_part
from fedcomp.config.loading import folders_of
from fedcomp.config.overrides import only_value
from fedcomp.config.placement import run_folder
from fedcomp.core.first_line import first_line
from fedcomp.core.folders import CONF
from fedcomp.display.console import say
from fedcomp.distributed.context import check_enough_work
from fedcomp.launcher.contract import GridRun, RunFailed, RunOutcome
from fedcomp.launcher.contract import Launcher as RunLauncher
from fedcomp.launcher.process import Tally
from fedcomp.objective.objectives import ObjectiveFailed, value_of
from fedcomp.provenance.check import FinishedRuns
from fedcomp.records.atomic_write import explained
from fedcomp.records.grid import MANIFEST, append
from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.metrics_file import Line, read_lines
from fedcomp.records.reader import RunFiles
from fedcomp.runtime import bfloat16
from fedcomp.runtime.signals import GracefulStop, restore_sigint
from fedcomp.tracking.contract import Tracker
from fedcomp.training.place import update_label

MANY = 20
"""Runs of a grid from which on a line says that they are being composed, of which Hydra makes about six a second."""


class _Job(NamedTuple):  # not a dataclass: Hydra imports plugins without registering them in sys.modules
    """A run and its config in Hydra. `broken`: why it cannot run. `remark`: a line about a finished run."""

    run: GridRun
    config: DictConfig
    finished: bool
    broken: str | None
    remark: str | None = None


class GridLauncher(Launcher):
    """Launches the runs of a grid by `settings`, the choice of the config group `launcher`."""

    def __init__(self, settings: RunLauncher) -> None:
        self.settings = settings
        self._finished_runs: FinishedRuns | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before `launch`."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """One result per run, in order: `return_value` is the objective's value, or RunFailed with an error line.

        Of a finished run whose record the objective cannot read it is the ObjectiveFailed.

        Raises:
            ValueError: an invalid run, or a launcher that does not work here; no run has started.
        """
        setup_globals()
        grid = Path(self.config.hydra.sweep.dir).absolute()
        self._finished_runs = None
        if len(job_overrides) >= MANY and not self.config.quiet:
            say(f"composing {len(job_overrides)} runs")
        jobs = [self._compose(list(own), initial_job_idx + index, grid) for index, own in enumerate(job_overrides)]
        with explained(grid):
            grid.mkdir(parents=True, exist_ok=True)
        _write_manifest(grid, jobs)
        firsts: dict[Path, _Job] = {}
        for job in jobs:
            firsts.setdefault(job.run.folder, job)
        again = [job for job in jobs if firsts[job.run.folder] is not job]
        pending = [job for job in firsts.values() if not job.finished and job.broken is None]
        num_finished = sum(job.finished for job in jobs)
        told = any(not job.run.quiet for job in jobs)
        if num_finished and told:
            say(f"{num_finished} of {len(jobs)} runs are finished already (overwrite=true runs them again)")
        if again and told:
            run, first = again[0].run, firsts[again[0].run.folder].run
            say(
                f"{len(again)} of {len(jobs)} runs only repeat others, which are made once: run {run.number} "
                f"({run.description}) differs from run {first.number} ({first.description}) in nothing that affects "
                "a result"
            )
        for remark, number in Counter(job.remark for job in jobs if job.remark is not None and told).items():
            say(f"{number} of them: {remark}")
        for job in jobs:
            if job.broken is not None:
                say(f"run {job.run.number} ({job.run.description}) failed: {job.broken}")
        if any(job.config.precision.name == "bf16" and job.run.device == "cpu" for job in pending):
            bfloat16.prepare_bfloat16()  # another run, or the workers, may load torch before
        restore_sigint()  # launchers handle Ctrl-C themselves
        configs = {job.run.number: job.config for job in pending}
        runs = [job.run for job in pending]
        tally = Tally(len(runs))

        def here(run: GridRun) -> str | None:
            config = configs[run.number]
            GracefulStop.unheeded = None  # a run that fails early does not get to hear signals
            error = self._run_here(config)
            tally.add(RunOutcome(run, error), shown=error is None)  # an error is said already
            if GracefulStop.unheeded is not None:
                say("interrupted; the same command resumes the grid")
                raise SystemExit(128 + GracefulStop.unheeded)
            return error

        outcomes = self.settings.launch(runs, grid, here) if runs else []
        by_folder = {one.run.folder: one for one in outcomes}
        return [_job_return(job, by_folder.get(job.run.folder, RunOutcome(job.run, job.broken))) for job in jobs]

    def _compose(self, overrides: list[str], number: int, grid: Path) -> _Job:
        given = OverridesParser.create().parse_overrides(list(self.config.hydra.overrides.task))
        common = {f"{one.get_key_element()}={only_value(one)}" for one in given}
        own = tuple(word for word in overrides if word not in common)
        try:
            composed = self.hydra_context.config_loader.load_sweep_config(self.config, overrides)
        except (HydraException, OmegaConfBaseException) as error:
            own_folders = [folder for folder in folders_of(self.config) if folder != CONF]
            reason = error_message(error, overrides, own_folders)
            raise ValueError(f"run {number} ({' '.join(own)}): {reason}") from error
        placed = self.settings.place(composed.device, composed.threads)
        with open_dict(composed.hydra):
            composed.hydra.job.id = composed.hydra.job.num = number
        for key, value in placed.items():
            OmegaConf.update(composed, key, value)
        task = _without_hydra(composed)
        schema.check(task)
        if task.num_clients is not None:  # else the data decide
            check_enough_work(task.num_clients, task.repeats, self.settings.processes_per_run)
        plain = schema.plain_config(task, task.device)
        folder = run_folder(plain).absolute()
        places = [f"{key}={value}" for key, value in placed.items()]
        command = (sys.executable, "-m", "fedcomp", *_flags(composed), *overrides, *places, "hydra.mode=RUN")
        run = GridRun(number, own, command, folder, grid / f"{number}.log", task.quiet)
        try:
            if task.overwrite or RunFiles(folder).finished(task) is None:
                check_effects(task)
                return _Job(run, composed, finished=False, broken=None)
            remark = self._checked(folder, task)
            update_label(folder, plain)
            finished = not build_part(task.tracker, Tracker).lacks(folder)  # else the run shows itself, and is done
        except ValueError as error:
            return _Job(run, composed, finished=False, broken=str(error))
        return _Job(run, composed, finished, broken=None, remark=remark if finished else None)

    def _checked(self, folder: Path, task: DictConfig) -> str | None:
        """A line for the user about a finished run. Raises ValueError if its data or code have changed."""
        if self._finished_runs is None:
            self._finished_runs = FinishedRuns(lambda config: build(OmegaConf.create(dict(config["dataset"]))))
        return self._finished_runs.check(folder, schema.plain_config(task, task.device))

    def _run_here(self, config: DictConfig) -> str | None:
        """Run one run in this process; returns the first line of its error, or None."""
        done = run_job(
            hydra_context=self.hydra_context,
            task_function=self.task_function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        if done.status is JobStatus.COMPLETED:
            return None
        error = done._return_value  # `return_value` would raise it
        if not isinstance(error, RunFailed):
            traceback.print_exception(error)
        return first_line(error)


def _job_return(job: _Job, outcome: RunOutcome) -> JobReturn:
    task = _without_hydra(job.config)
    out = JobReturn(overrides=list(job.run.overrides), cfg=task, hydra_cfg=job.config, task_name="fedcomp")
    error = outcome.error
    lines: list[Line] = []
    if error is None:
        try:
            lines = read_lines(job.run.folder / RECORD)
        except ValueError as unreadable:
            error = str(unreadable)
    out.status = JobStatus.COMPLETED if error is None else JobStatus.FAILED
    out.return_value = _value(task, job.run, lines) if error is None else RunFailed(error)
    return out


def _value(task: DictConfig, run: GridRun, lines: Sequence[Line]) -> float | tuple[float, ...] | ObjectiveFailed:
    try:
        return value_of(instantiate(task.objective), lines)
    except ObjectiveFailed as error:
        return ObjectiveFailed(f"run {run.number} ({run.description}) is finished, but {error}")


def _write_manifest(grid: Path, jobs: Sequence[_Job]) -> None:
    """Append the runs of the grid to its manifest, one JSON line each, so that pending runs can be shown.

    The line of the first run of each config contains the config.
    """
    seen, lines = set(), []
    for job in jobs:
        run, line = job.run, {"number": job.run.number, "folder": os.path.relpath(job.run.folder, grid)}
        if run.folder.parent not in seen:
            seen.add(run.folder.parent)
            task = _without_hydra(job.config)
            line["config"] = schema.plain_config(task, task.device)
        lines.append({**line, "overrides": run.overrides})
    append(grid / MANIFEST, lines)


def _flags(config: DictConfig) -> list[str]:
    """`--config-dir` with the user's config folder, for a run in another process."""
    sources = config.hydra.runtime.config_sources
    folders = [source.path for source in sources if source.provider == "command-line"]
    return [word for folder in folders for word in ("--config-dir", folder.removeprefix("file://"))]


def _without_hydra(config: DictConfig) -> DictConfig:
    task = copy.deepcopy(config)
    OmegaConf.set_readonly(task, False)
    with open_dict(task):
        del task["hydra"]
    return task
