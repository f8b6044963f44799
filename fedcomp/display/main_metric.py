"""The metric that a run's curve, its progress and its last line show."""

from collections.abc import Iterable

from fedcomp.display import units
from fedcomp.records.metrics_file import Metrics

PREFERRED = ("test/miou", "test/accuracy", "test/loss", "mse")


def main_metric(lines: Iterable[Metrics]) -> str | None:
    """The first of `PREFERRED` that the lines have, else the first test/... in them; None if there is none."""
    names = dict.fromkeys(key for line in lines for key in line if key.startswith("test/") or key in PREFERRED)
    return next((name for name in (*PREFERRED, *names) if name in names), None)


def axis_name(metric: str) -> str:
    """A metric's name on the axis of a picture: "test accuracy (%)", "test loss", "test mean IoU"."""
    return metric.replace("/", " ").replace(" miou", " mean IoU") + (" (%)" if metric == "test/accuracy" else "")


def metric_text(metric: str, value: float) -> str:
    """A metric and its value as text: `accuracy 97.31 %`, `test loss 0.312`."""
    if metric == "test/accuracy":
        return f"accuracy {units.percent(value)} %"
    return f"{axis_name(metric)} {units.significant(value)}"
