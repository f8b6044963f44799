"""What runs record about quality: which metrics there are, which way is better, how people read them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fedcomp.display import units
from fedcomp.records.reader import RecordedRun

ACCURACY, LOSS, MIOU = "test/accuracy", "test/loss", "test/miou"
MSE = "mse"
"""Mean squared error of estimates so far: what mean estimation is about, beside its last estimate's `test/error`."""

IOU = "/iou/"
"""In the names of classes' own intersections over union, which tables leave to `test/miou`."""
BOOKKEEPING = ("bits/", "bpp/", "paper/", "time/", "deadline/", "train/", "participation/")
"""Prefixes of metrics that are no quality."""
SPREAD = ("variance/test/accuracy", "variance/test/loss", "cep/")
"""Prefixes of metrics of the dispersion over a study's repetitions."""
NOT_METRICS = frozenset({"round", "seconds", "gradients"})


@dataclass(frozen=True)
class Metric:
    """One quantity to judge runs by.

    Attributes:
        key: in the lines of a run.
        title: for people, with its unit.
        scale: from the recorded number to the one shown: 100 for accuracies, which are shown in percent.
        higher_is_better: true of accuracies and of intersections over union; losses, distances and errors are the
            better the smaller.
    """

    key: str
    title: str
    scale: float
    higher_is_better: bool

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

    def best(self, values: Iterable[float]) -> float:
        """The best finite value, the first one where none is finite."""
        every = list(values)
        finite = [value for value in every if math.isfinite(value)]
        return (max if self.higher_is_better else min)(finite) if finite else every[0]

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is as good as the target."""
        return value >= target if self.higher_is_better else value <= target


def metric(key: str) -> Metric:
    """`test/accuracy` -> test accuracy (%), `mse/closed_form` -> mse closed form, `cep/theta` -> CEP of theta."""
    words = key.replace("variance/", "variance of ").replace("cep/", "CEP of ").replace("/", " ").replace("_", " ")
    words += " f − f*" if key.endswith("/excess") else ""
    if key.split("/")[-1] == "accuracy" and not key.startswith("variance/"):
        return Metric(key, f"{words} (%)", 100, True)
    if key.startswith("per_client/accuracy_"):
        return Metric(key, f"{words} (%)", 100, not key.endswith("_std"))
    overlap = (key.endswith("/miou") or IOU in key) and not key.startswith("variance/")
    return Metric(key, words.replace("miou", "mean IoU").replace(" iou ", " IoU "), 1, overlap)


def recorded(runs: Iterable[RecordedRun]) -> list[str]:
    """Every key of the runs' lines that is no bookkeeping: mean IoU, accuracy, loss, mse, `test/...`, others."""
    keys: set[str] = set()
    for run in runs:
        keys.update(*run.lines)
    kept = (key for key in keys if key not in NOT_METRICS and not key.startswith(BOOKKEEPING))
    return sorted(
        kept, key=lambda key: (key != MIOU, key != ACCURACY, key != LOSS, key != MSE, not key.startswith("test/"), key)
    )


def trained(runs: Iterable[RecordedRun]) -> list[str]:
    """What the runs recorded of their training, such as `train/loss`: no quality, but a target may be set for it."""
    return sorted({key for run in runs for line in run.lines for key in line if key.startswith("train/")})


def qualities(runs: Iterable[RecordedRun]) -> list[Metric]:
    """What these runs are judged by: mse and all of `test/...`; where some run has none of it, its other metrics too.

    What the runs' own `figures:` take as an x axis or for panels is no quality, nor is the IoU of a single class.
    """
    every = list(runs)
    entries = [entry for run in every for entry in run.config.get("figures") or () if isinstance(entry, dict)]
    axes = {entry.get(name) for entry in entries for name in ("x", "panel")}
    judged = [run for run in every if any(key.startswith("test/") for line in run.lines for key in line)]
    bare = [run for run in every if run not in judged] if len(judged) < len(every) else []
    keys = [key for key in recorded(judged) if key.startswith("test/") or key == MSE]
    keys += [key for key in recorded(bare) if key not in keys]
    return [metric(key) for key in keys if key not in axes and IOU not in key]
