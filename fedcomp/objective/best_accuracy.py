"""The best test accuracy of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedcomp.display import units
from fedcomp.objective.contract import Direction
from fedcomp.records.metrics_file import Line


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
