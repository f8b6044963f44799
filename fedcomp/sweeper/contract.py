"""The contract of a sweeper, and the simplest one: it proposes points of a space of settings, and has them run.

It knows nothing of Hydra; `hydra_plugins/fedcomp_grid` reads the space off the command line and runs the points.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedcomp.objective.objectives import Objective
from fedcomp.objective.pareto import Pareto


class SweepFailed(Exception):
    """A grid has failed runs, or a search has no result; the reason has been printed."""


@dataclass(frozen=True)
class Choices:
    """A finite list of values, as written on the command line: `a,b`, `range(5)`."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class Interval:
    """All numbers from `low` to `high`, both included: `interval(1, 8)`, `tag(log, interval(0.001, 1))`.

    Attributes:
        log: whether the search is uniform in the logarithm. integer: whether only whole numbers count.
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False


Space = Mapping[str, Choices | Interval]
"""What each swept key may be; at least one value each, in the order of the command line."""

Point = Mapping[str, str]
"""One value for each key of the space."""


@dataclass(frozen=True)
class Result:
    """The objective's value at a point, one for each of several objectives (NaN: none), or the error in one line.

    Attributes:
        unread: the error is the objective's own: the run is finished, and only its record was not read.
    """

    value: float | tuple[float, ...]
    error: str | None = None
    unread: bool = False


Evaluate = Callable[[Sequence[Point]], Sequence[Result]]
"""Runs points, as many at once as the launcher can, and returns their results in order."""


@dataclass(frozen=True)
class Report:
    """The end of a sweep: `failed` decides the exit status, `message` is one line to print (empty: none)."""

    failed: bool
    message: str = ""


class Sweeper(Protocol):
    """Decides which points are run. A point that fails stops no other."""

    def sweep(self, space: Space, evaluate: Evaluate, objective: Objective | Pareto, fixed: str = "") -> Report:
        """Run to the end; `fixed` names the settings that all points share.

        Raises ValueError: a space that this sweeper cannot cover; what to do.
        """


@dataclass(frozen=True)
class Grid:
    """Every combination of every value, all handed to the launcher at once; the last key varies fastest.

    A value given twice counts once: two runs cannot share a folder.
    """

    def sweep(self, space: Space, evaluate: Evaluate, objective: Objective | Pareto, fixed: str = "") -> Report:
        """Run them all. Raises ValueError: an interval has no end of values."""
        lists = []
        for key, domain in space.items():
            if not isinstance(domain, Choices):
                raise ValueError(f"{key} is an interval: give a list (a,b or range()), or take sweeper=optuna")
            lists.append(list(dict.fromkeys(domain.values)))
        results = evaluate([dict(zip(space, values)) for values in itertools.product(*lists)])
        return Report(any(result.error is not None for result in results), unread(results) or "")


def unread(results: Sequence[Result]) -> str | None:
    """The line about an objective that cannot read the records of finished runs; None: it read them all."""
    errors = [result.error for result in results if result.unread]
    if not errors:
        return None
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{errors[0]}{more}; correct it: the same command goes on, and makes no finished run again"
