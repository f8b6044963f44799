"""Hydra's launcher: composes the runs of a grid, leaves out finished ones, and hands the rest to `fedcomp.launcher`."""

from __future__ import annotations

import copy
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

from fedcomp import schema
from fedcomp.launcher.contract import MANIFEST, Outcome, Run, RunFailed
from fedcomp.launcher.contract import Launcher as RunLauncher
from fedcomp.launcher.say import say
from fedcomp.run_folder import run_folder
from fedcomp.tracking.record import FILE as RECORD
from fedcomp.tracking.record import read_lines
from fedcomp.tracking.status import read_status


class _Job(NamedTuple):  # no dataclass: Hydra imports plugins in a way that those do not bear
    """A run with Hydra's config of it. `finished`: there is nothing left to do."""

    run: Run
    config: DictConfig
    finished: bool


class GridLauncher(Launcher):
    """Runs the runs of a grid wherever `settings` (the config group `launcher`) says."""

    def __init__(self, settings: RunLauncher) -> None:
        self.settings = settings

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's hand-over."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """One return a run, in order: `return_value` is the objective's value, or RunFailed with its one line.

        Raises:
            ValueError: a run that cannot be, or a launcher that cannot work here; nothing has run then.
        """
        setup_globals()
        grid = Path(self.config.hydra.sweep.dir).absolute()
        jobs = [self._compose(list(own), initial_job_idx + index, grid) for index, own in enumerate(job_overrides)]
        grid.mkdir(parents=True, exist_ok=True)
        _note(grid, [job.run for job in jobs])
        due = [job for job in jobs if not job.finished]
        if len(due) < len(jobs):
            say(f"{len(jobs) - len(due)} of {len(jobs)} runs are finished already (overwrite=true runs them again)")
        configs = {job.run.number: job.config for job in due}
        runs = [job.run for job in due]
        outcomes = self.settings.launch(runs, grid, lambda run: self._here(configs[run.number])) if runs else []
        became = {one.run.number: one for one in outcomes}
        return [_job_return(job, became.get(job.run.number, Outcome(job.run))) for job in jobs]

    def _compose(self, overrides: list[str], number: int, grid: Path) -> _Job:
        composed = self.hydra_context.config_loader.load_sweep_config(self.config, overrides)
        placed = self.settings.place(composed.device, composed.threads)
        with open_dict(composed.hydra):
            composed.hydra.job.id = composed.hydra.job.num = number
        for key, value in placed.items():
            OmegaConf.update(composed, key, value)
        task = _without_hydra(composed)
        schema.check(task)
        folder = run_folder(schema.plain_config(task, task.device)).absolute()
        given = [f"{key}={value}" for key, value in placed.items()]
        command = (sys.executable, "-m", "fedcomp", *_flags(composed), *overrides, *given, "hydra.mode=RUN")
        common = set(self.config.hydra.overrides.task)
        own = tuple(word for word in overrides if word not in common)
        status = None if task.overwrite else read_status(folder)
        finished = status is not None and status.state == "finished" and status.round == task.rounds
        return _Job(Run(number, own, command, folder, grid / f"{number}.log"), composed, finished)

    def _here(self, config: DictConfig) -> str | None:
        """Run one in this process; what it raises is its error line."""
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
        return str(error).strip().split("\n")[0] or type(error).__name__


def _job_return(job: _Job, became: Outcome) -> JobReturn:
    task = _without_hydra(job.config)
    out = JobReturn(overrides=list(job.run.overrides), cfg=task, hydra_cfg=job.config, task_name="fedcomp")
    out.status = JobStatus.COMPLETED if became.error is None else JobStatus.FAILED
    if became.error is None:
        out.return_value = instantiate(task.objective)(read_lines(job.run.folder / RECORD))
    else:
        out.return_value = RunFailed(became.error)
    return out


def _note(grid: Path, runs: Sequence[Run]) -> None:
    """Which runs belong to the grid, one JSON line each, so that those that have not begun can be shown."""
    with (grid / MANIFEST).open("a") as file:
        for run in runs:
            line = {"number": run.number, "folder": os.path.relpath(run.folder, grid), "overrides": run.overrides}
            file.write(json.dumps(line) + "\n")


def _flags(config: DictConfig) -> list[str]:
    """The user's own config folder, which a run in another process needs too."""
    sources = config.hydra.runtime.config_sources
    folders = [source.path for source in sources if source.provider == "command-line"]
    return [word for folder in folders for word in ("--config-dir", folder.removeprefix("file://"))]


def _without_hydra(config: DictConfig) -> DictConfig:
    task = copy.deepcopy(config)
    OmegaConf.set_readonly(task, False)
    with open_dict(task):
        del task["hydra"]
    return task
