"""How good a run must get before rounds, bits and seconds to that are counted: `--target`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedcomp.core.validate import suggest
from fedcomp.display.metric import ACCURACY, Metric, metric
from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.group import RunGroup
from fedcomp.reporting.metrics import qualities, recorded, trained


@dataclass(frozen=True)
class Target:
    """`--target 0.9`: how good a run must get.

    Attributes:
        metric: in which.
        value: as recorded, accuracies between 0 and 1.
    """

    metric: Metric
    value: float

    def line(self, run: RecordedRun) -> dict[str, float] | None:
        """The run's first evaluation that reaches it, None if none does."""
        key = self.metric.key
        return next((line for line in run.lines if key in line and self.metric.reaches(line[key], self.value)), None)

    def __str__(self) -> str:
        shown = self.metric.show(self.value)
        if self.metric.scale == 100:
            shown = f"{shown.rstrip('0').rstrip('.')} %"
        return shown if self.metric.key == ACCURACY else f"{self.metric.words} {shown}"


def parse_target(text: str, groups: Sequence[RunGroup]) -> Target:
    """`0.9` of the first quality the runs recorded, or `test/loss=0.3` of another.

    Raises ValueError: no number, no run that recorded the metric, an accuracy that is no fraction.
    """
    key, _, number = text.rpartition("=")
    runs = [run for one in groups for run in one.runs]
    known = [*recorded(runs), *trained(runs)]
    if key and key not in known:
        raise ValueError(f"--target {text}: no run recorded a quality {key}{suggest(key, known)}")
    if not known:
        raise ValueError(f"--target {text}: the runs recorded no quality to reach")
    wanted = metric(key) if key else (qualities(runs) or [metric(known[0])])[0]
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"--target {text} is no number; give 0.9, or a metric with it: --target test/loss=0.3")
    if wanted.scale == 100 and not 0 < value <= 1:
        raise ValueError(f"--target {text}: an accuracy is a fraction between 0 and 1; for 90 % give --target 0.9")
    return Target(wanted, value)
