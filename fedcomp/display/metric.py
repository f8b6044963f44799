"""What a metric of a record means: how people read it, which way is better, and which one a run is shown by."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fedcomp.display import units
from fedcomp.records.metrics_file import Metrics

ACCURACY, LOSS, MIOU = "test/accuracy", "test/loss", "test/miou"
MSE = "mse"
"""Mean squared error of estimates so far: what mean estimation is about, beside its last estimate's `test/error`."""
PREFERRED = (MIOU, ACCURACY, LOSS, MSE)
IOU = "/iou/"
"""In the names of classes' own intersections over union, which tables leave to `test/miou`."""


@dataclass(frozen=True)
class Metric:
    """One quantity to judge runs by.

    Attributes:
        key: in the lines of a run.
        words: for people, without its unit.
        scale: from the recorded number to the one shown: 100 for accuracies, which are shown in percent.
        higher_is_better: true of accuracies and of intersections over union; losses, distances and errors are the
            better the smaller.
    """

    key: str
    words: str
    scale: float
    higher_is_better: bool

    @property
    def title(self) -> str:
        """For people, with its unit: `test accuracy (%)`."""
        return f"{self.words} (%)" if self.scale == 100 else self.words

    @property
    def name(self) -> str:
        """For CSV columns and file names: `test_accuracy`."""
        return self.key.replace("/", "_")

    def show(self, value: float) -> str:
        """A recorded number as people read it, without its unit."""
        return units.percent(value) if self.scale == 100 else units.significant(value)

    def show_mean(self, mean: float, deviation: float) -> str:
        """Mean and deviation of recorded numbers as people read them: `97.31 ± 0.12`, `0.3000 ± 0.0044`."""
        if self.scale == 100:
            return f"{units.percent(mean)} ± {units.percent(deviation)}"
        return units.mean_and_deviation(mean, deviation)

    def text(self, value: float) -> str:
        """The metric and a recorded number: `accuracy 97.31 %`, `test loss 0.312`."""
        words = "accuracy" if self.key == ACCURACY else self.words
        return f"{words} {self.show(value)}{' %' if self.scale == 100 else ''}"

    def best(self, lines: Iterable[Metrics]) -> float | None:
        """The best finite value in a record, the first one where none is finite; None: no line has the metric."""
        every = [line[self.key] for line in lines if self.key in line]
        finite = [value for value in every if math.isfinite(value)]
        return (max if self.higher_is_better else min)(finite) if finite else next(iter(every), None)

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is as good as the target."""
        return value >= target if self.higher_is_better else value <= target


def metric(key: str) -> Metric:
    """`test/accuracy` -> test accuracy (%), `mse/closed_form` -> mse closed form, `cep/theta` -> CEP of theta."""
    words = key.replace("variance/", "variance of ").replace("cep/", "CEP of ").replace("/", " ").replace("_", " ")
    words += " f − f*" if key.endswith("/excess") else ""
    if key.split("/")[-1] == "accuracy" and not key.startswith("variance/"):
        return Metric(key, words, 100, True)
    if key.startswith("per_client/accuracy_"):
        return Metric(key, words, 100, not key.endswith("_std"))
    overlap = (key.endswith("/miou") or IOU in key) and not key.startswith("variance/")
    return Metric(key, words.replace("miou", "mean IoU").replace(" iou ", " IoU "), 1, overlap)


def main_metric(lines: Iterable[Metrics]) -> Metric | None:
    """What a run's curve and its progress show: the first of PREFERRED that the lines have, else the first test/...

    None if there is none.
    """
    names = dict.fromkeys(key for line in lines for key in line if key.startswith("test/") or key in PREFERRED)
    return next((metric(name) for name in (*PREFERRED, *names) if name in names), None)
