"""What a search over settings asks of a run, one number: the contract, the best accuracy, and the bits to a target."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from fedcomp.core.first_line import first_line
from fedcomp.core.ranges import CheckedOptions, Within
from fedcomp.display import units
from fedcomp.records.metrics_file import Line

Direction = Literal["maximize", "minimize"]
Way = Literal["total", "uplink", "downlink", "broadcast"]


class Objective(Protocol):
    """Reads one number off a run's record. `direction`: which way is better."""

    direction: Direction

    def __call__(self, lines: Sequence[Line]) -> float:
        """The number; NaN if the record has none (a search counts such a run as failed)."""

    def show(self, value: float) -> str:
        """The number for people."""


class ObjectiveFailed(Exception):
    """An objective of one's own raised an error, or returned no number, for the record of a finished run: one line."""


def value_of(
    objective: Callable[[Sequence[Line]], float | tuple[float, ...]], lines: Sequence[Line]
) -> float | tuple[float, ...]:
    """What the objective says of a run's record, one number, or one for each of several ends.

    Raises ObjectiveFailed: it raises an error, or returns something else.
    """
    name = type(objective).__name__
    try:
        value = objective(lines)
    except Exception as error:
        raise ObjectiveFailed(f"objective {name} raised {type(error).__name__} ({first_line(error)})") from error
    try:
        return tuple(map(float, value)) if isinstance(value, tuple) else float(value)
    except (TypeError, ValueError) as error:
        raise ObjectiveFailed(f"objective {name} returned {value!r}, but must return a number, NaN for none") from error


@dataclass(frozen=True)
class BestAccuracy:
    """max over evaluations of test/accuracy, a fraction in [0, 1]."""

    direction: Direction = "maximize"

    def __call__(self, lines: Sequence[Line]) -> float:
        """The best accuracy; NaN for a regression."""
        values = [line["test/accuracy"] for line in lines if math.isfinite(line.get("test/accuracy", math.nan))]
        return max(values, default=math.nan)

    def show(self, value: float) -> str:
        """In percent."""
        return f"accuracy {units.percent(value)} %"


@dataclass(frozen=True)
class BitsToTarget(CheckedOptions):
    """bits/<way> at the first evaluation with test/accuracy >= target; infinite for a run that never gets there."""

    target: Annotated[float, Within("(0, 1]", "an accuracy, 0.9 for 90 %")] = 0.9
    way: Way = "total"
    direction: Direction = "minimize"
    prefix = "objective."

    def __call__(self, lines: Sequence[Line]) -> float:
        """Bits; infinite if the target is never reached; NaN for a regression."""
        if not any("test/accuracy" in line for line in lines):
            return math.nan
        reached = (line for line in lines if line.get("test/accuracy", -1.0) >= self.target)
        return float(next((line[f"bits/{self.way}"] for line in reached), math.inf))

    def show(self, value: float) -> str:
        """In a unit that fits."""
        if math.isinf(value):
            return f"{units.percent(self.target)} % never reached"
        return f"{units.bits(value)} to {units.percent(self.target)} %"
