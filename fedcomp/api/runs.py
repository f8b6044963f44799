"""Runs from Python: start one, read those that are there, and take their trained models away."""

import functools
import math
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from fedcomp.config.placement import run_folder
from fedcomp.config.schema import plain_config
from fedcomp.core.folders import part_name
from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.metrics_file import Line
from fedcomp.records.reader import RecordedRun, RunFiles, find_runs, read_run


@dataclass(frozen=True)
class Run:
    """A run in its `folder`, `outputs/<name>/<hash>/seed=<n>`."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))  # which may be given as a string

    @functools.cached_property
    def _recorded(self) -> RecordedRun:
        return read_run(RunFiles(self.folder))

    @property
    def state(self) -> str:
        """`finished`, `running` (also: killed), `failed`, `interrupted` or `unreadable`."""
        return self._recorded.state

    @functools.cached_property
    def config(self) -> DictConfig:
        """The resolved config. Raises ValueError: it cannot be read."""
        if self._recorded.error is not None and not self._recorded.config:
            raise ValueError(self._recorded.error)
        return OmegaConf.create(RunFiles(self.folder).written_config())

    @property
    def lines(self) -> list[Line]:
        """The evaluations as they were recorded, one mapping each. Raises ValueError: they cannot be read."""
        if self.state == "unreadable":
            raise ValueError(self._recorded.error)
        if self.state == "finished" and not self._recorded.lines:
            raise ValueError(f"{self.folder} is finished, but has no record: its {RECORD} is missing or empty")
        return self._recorded.lines

    @property
    def metrics(self) -> Any:
        """The evaluations as a table with a column for each metric and `round`.

        A pandas DataFrame if pandas is installed, else a polars DataFrame if that is, else a dict of NumPy arrays. What
        an evaluation does not have is NaN.
        """
        return table(self.lines)

    def model(self, round: int | str = "last", trust_code: bool = False, dataset: Sequence[str] = ()) -> nn.Module:
        """The trained module, on the CPU, in evaluation mode.

        A checkpoint of another version of fedcomp is read as far as the model needs it; a warning says what it lacks.

        Args:
            round: "last", or the number of rounds of the run's checkpoint: a run keeps its last one.
            trust_code: run code that the run's config names although it is not fedcomp's, such as a network of yours.
            dataset: where the run's data lie by now, as overrides: `dataset.root=/data`, or `dataset.path=mine.csv` of
                a file that is not where it was.
        Raises:
            ValueError: the config names code that is not trusted, the run has no checkpoint, or not of this round, or
                its model is no network, or it evaluates several models: take `models`, or its checkpoint lacks
                something that the model follows from.
        """
        found = self.models(round, trust_code, dataset)
        if len(found) > 1:
            raise ValueError(f"{self.folder} evaluates {len(found)} models and records their mean: take models()")
        return found[0]

    def models(
        self, round: int | str = "last", trust_code: bool = False, dataset: Sequence[str] = ()
    ) -> list[nn.Module]:
        """The modules whose mean the record's `test/` metrics are, as `model` gives them.

        There are several where clients have models of their own, or masks are drawn.
        """
        from fedcomp.api.trained_model import modules_of, trained_run

        trained = trained_run(self.folder, trust_code, dataset)
        if round not in ("last", trained.round):
            raise ValueError(
                f"{self.folder} has no model of round {round}: a run keeps its last one, of {trained.round}"
            )
        return modules_of(trained)


Runs = Run | str | Path | Iterable[Run | str | Path]
"""Runs, or folders that hold some; also a single one."""


def run(config: DictConfig | Iterable[str]) -> Run:
    """Run what the config describes, resume it, or return it at once if it is finished.

    Args:
        config: of `compose`, or the overrides themselves.
    Raises:
        ValueError: something in the config cannot be; one line says what, what is allowed and what to do.
        KeyboardInterrupt: Ctrl-C; the state is saved, and after the last round the run is finished.
    """
    from fedcomp.config.compose import compose
    from fedcomp.runtime.process_settings import pick_device
    from fedcomp.runtime.signals import GracefulStop, Interrupted
    from fedcomp.training.train import train

    if not isinstance(config, DictConfig):
        config = compose(config)
    for part, alone in (("launcher", "Local"), ("sweeper", "Grid")):
        target = str(OmegaConf.select(config, f"{part}._target_"))
        if not target.endswith(f".{alone}"):
            raise ValueError(
                f"{part}={part_name(target)} is for the runs of a grid, and fedcomp.run makes one: call it for each, "
                "or use the command line (fedcomp -m ...)"
            )
    threads, GracefulStop.unheeded = torch.get_num_threads(), None
    try:
        train(config)
    except Interrupted as interruption:
        if interruption.signal != signal.SIGINT:
            raise
        raise KeyboardInterrupt(str(interruption)) from interruption
    finally:
        torch.set_num_threads(threads)
        if GracefulStop.unheeded is not None:  # it came in the last round
            signal.raise_signal(GracefulStop.unheeded)
    return Run(run_folder(plain_config(config, pick_device(config.device))))


def load_runs(path: str | Path | Iterable[str | Path]) -> list[Run]:
    """Every run in or below the folders, in the order of their paths, whatever became of it.

    Raises ValueError: there is no such folder, or there is no run in it.
    """
    paths = [path] if isinstance(path, str | Path) else list(path)
    roots = [Path(one) for one in paths]
    found = [Run(files.folder) for files in find_runs(roots).runs.values()]
    if not found:
        raise ValueError(f"no run found under {', '.join(map(str, roots))}")
    return found


def folders_of(runs: Runs) -> list[Path]:
    """Of these runs. Raises ValueError: there are none."""
    every = [runs] if isinstance(runs, Run | str | Path) else runs
    folders = [one.folder if isinstance(one, Run) else Path(one) for one in every]
    if not folders:
        raise ValueError("there is no run to report")
    return folders


def report(runs: Runs, out: str | Path, target: str | float | None = None) -> Path:
    """Write the tables and pictures of `fedcomp-report` to a folder.

    Args:
        runs: runs, or folders that hold some; also a single one.
        out: the folder to write.
        target: as `--target`: 0.9, "test/loss=0.3".
    Raises:
        ValueError: no run is finished, or the target is unknown.
    """
    from fedcomp.reporting.build import report as build_report
    from fedcomp.reporting.content import Options

    if build_report(Options(folders_of(runs), Path(out), None if target is None else str(target), one_process=True)):
        raise ValueError("no run is finished")
    return Path(out)


def table(lines: Iterable[Line]) -> Any:
    """Evaluations as columns: see `Run.metrics`."""
    rows = list(lines)
    names = list(dict.fromkeys(name for line in rows for name in line))
    columns = {name: np.array([line.get(name, math.nan) for line in rows]) for name in names}
    try:
        import pandas
    except ImportError:
        try:
            import polars
        except ImportError:
            return columns
        return polars.DataFrame(columns)
    return pandas.DataFrame(columns)
