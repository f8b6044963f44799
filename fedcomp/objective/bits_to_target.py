"""The bits that a run sends until its test accuracy reaches a target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedcomp.display import units
from fedcomp.objective.contract import Direction
from fedcomp.records.metrics_file import Line

WAYS = ("total", "uplink", "downlink", "broadcast")


@dataclass(frozen=True)
class BitsToTarget:
    """bits/<way> at the first evaluation with test/accuracy >= target; infinite for a run that never gets there.

    Attributes:
        target: a fraction in (0, 1].
        way: which bits: total (uplink + downlink), uplink, downlink, broadcast.
    """

    target: float = 0.9
    way: str = "total"
    direction: Direction = "minimize"

    def __post_init__(self) -> None:
        if not 0 < self.target <= 1:
            raise ValueError(f"objective.target={self.target} must be a fraction in (0, 1]")
        if self.way not in WAYS:
            raise ValueError(f"objective.way={self.way} must be one of {', '.join(WAYS)}")

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
