"""The mean of a quantity over the seeds of a group, with its deviation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mean:
    """Mean over seeds.

    Attributes:
        mean: of the runs that have the value; NaN as soon as one of them is (a run that diverged stays visible).
        deviation: sample standard deviation (n - 1); None for a single seed.
        num_seeds: n.
    """

    mean: float
    deviation: float | None
    num_seeds: int

    @property
    def spread(self) -> float:
        """The deviation, NaN for a single seed."""
        return math.nan if self.deviation is None else self.deviation

    def shown(self, show: Callable[[float], str]) -> str:
        """`97.31 ± 0.12`, or `97.31` of a single seed."""
        return show(self.mean) + ("" if self.deviation is None else f" ± {show(self.deviation)}")


def mean_over_seeds(values: Sequence[float]) -> Mean:
    """Mean and sample deviation, sqrt(sum (x - mean)^2 / (n - 1)), of at least one value."""
    assert values
    if not all(map(math.isfinite, values)):
        return Mean(sum(values) / len(values), math.nan if len(values) > 1 else None, len(values))
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Mean(mean, None, 1)
    if min(values) == max(values):  # exactly: no deviation of 1e-17 from rounding
        return Mean(float(values[0]), 0.0, len(values))
    return Mean(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)), len(values))
