"""Hydra's sweeper: reads the search space from the command line, launches its points, and reports the result."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from fedcomp.config.overrides import only_value
from fedcomp.display import units
from fedcomp.display.console import say
from fedcomp.distributed.context import torchrun_env
from fedcomp.objective.objectives import Objective, ObjectiveFailed
from fedcomp.objective.pareto import Pareto
from fedcomp.records.run_folder import WITHOUT_EFFECT
from fedcomp.sweeper.contract import Choices, Interval, Point, Result, SweepFailed
from fedcomp.sweeper.contract import Sweeper as PointSweeper


class GridSweeper(Sweeper):
    """Runs the points that `settings`, the choice of the config group `sweeper`, proposes; failed runs do not stop it.

    Args:
        settings: grid or search. objective: what a search optimises.
        params: swept keys of an experiment, `seed: 0,1,2`; the command line overrides them.
    """

    def __init__(self, settings: PointSweeper, objective: Objective | Pareto, params: Mapping[str, Any] | None) -> None:
        self.settings, self.objective, self.params = settings, objective, params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before `sweep`."""
        self.config, self.loader = config, hydra_context.config_loader
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> list[JobReturn]:
        """Run all points, and print how many finished; with quiet=true only what went wrong, or was searched for.

        Raises:
            SweepFailed: a run of the grid failed, no trial of a search has a value, or the objective cannot read a
                record; the reason is printed already.
            ValueError: an invalid search space or run; no run has started.
        """
        if torchrun_env() is not None:
            raise ValueError("torchrun starts one run in several processes, not a grid: give one run, or no torchrun")
        if os.environ.get("WANDB_SWEEP_ID") and os.environ.get("WANDB_RUN_ID"):
            raise ValueError("an agent of W&B starts one run at a time, not a grid: give one run")
        assert self.launcher is not None
        assert self.config is not None
        launcher, grid = self.launcher, Path(self.config.hydra.sweep.dir)
        parser = OverridesParser.create(config_loader=self.loader)
        given = parser.parse_overrides([*(f"{key}={value}" for key, value in self.params.items()), *arguments])
        overrides = {override.get_key_element(): override for override in given}  # later ones override earlier ones
        space = {key: _domain(override) for key, override in overrides.items() if only_value(override) is None}
        returns: list[JobReturn] = []
        began = time.monotonic()

        def evaluate(points: Sequence[Point]) -> list[Result]:
            jobs = [[_word(key, override, point) for key, override in overrides.items()] for point in points]
            batch = list(launcher.launch(jobs, initial_job_idx=len(returns)))
            returns.extend(batch)
            return [_result(one) for one in batch]

        fixed = sorted(_word(key, override, {}) for key, override in overrides.items() if _is_setting(key, override))
        report = self.settings.sweep(space, evaluate, self.objective, " ".join(fixed))
        failed = sum(one.status is not JobStatus.COMPLETED for one in returns)
        logs = f"logs in {grid}; " if any(grid.glob("*.log")) else ""
        duration = units.duration(time.monotonic() - began)
        retry = ": run the same command to retry them" if failed else ""
        if failed or not self.config.quiet:
            say(
                f"{len(returns) - failed} finished, {failed} failed, in {duration}{retry}; {logs}"
                f"`fedcomp-status {quote(str(grid.parents[1]))}` shows them"
            )
        if report.message:
            say(report.message)
        if report.failed:
            raise SweepFailed
        return returns


def _domain(override: Override) -> Choices | Interval:
    """The values of a swept key.

    Raises ValueError: there are none, as in `range(1,1)`; or the bounds of an interval are no bounds.
    """
    value = override.value()
    if isinstance(value, IntervalSweep):
        low, high = value.start, value.end
        assert low is not None
        assert high is not None
        given, log = override.input_line, "log" in value.tags
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"{given}: the bounds of an interval must be finite numbers")
        if low > high:
            raise ValueError(f"{given}: the lower bound stands first: give interval({high:.12g},{low:.12g})")
        if log and low <= 0:
            raise ValueError(f"{given}: the lower bound is {low:g}, but must be above 0 for a search in its logarithm")
        return Interval(float(low), float(high), log, integer=isinstance(low, int) and isinstance(high, int))
    values = tuple(override.sweep_string_iterator())
    if not values:
        raise ValueError(f"{override.input_line} holds no value, so that there is no run: give one at least")
    return Choices(values)


def _word(key: str, override: Override, point: Point) -> str:
    return f"{key}={point[key] if key in point else only_value(override)}"


def _is_setting(key: str, override: Override) -> bool:
    """Whether this is a setting of all runs that affects their results."""
    return only_value(override) is not None and (key == "seed" or key.split(".")[0] not in WITHOUT_EFFECT)


def _result(done: JobReturn) -> Result:
    if done.status is not JobStatus.COMPLETED:
        return Result(math.nan, str(done._return_value))  # `return_value` would raise it
    value = done.return_value
    if isinstance(value, ObjectiveFailed):
        return Result(math.nan, str(value), unread=True)
    return Result(math.nan if value is None else value)
