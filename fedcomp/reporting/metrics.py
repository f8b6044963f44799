"""Which metrics runs record, and which of them are their qualities, by which methods are compared."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from fedcomp.display.metric import ACCURACY, IOU, MIOU, MSE, PREFERRED, Metric, metric
from fedcomp.records.reader import RecordedRun

BOOKKEEPING = ("bits/", "bpp/", "paper/", "time/", "deadline/", "train/", "participation/")
"""Prefixes of metrics that are no quality."""
SPREAD = ("variance/test/accuracy", "variance/test/loss", "cep/")
"""Prefixes of metrics of the dispersion over a study's repetitions."""
NOT_METRICS = frozenset({"round", "seconds", "gradients"})


def recorded(runs: Iterable[RecordedRun]) -> list[str]:
    """Every key of the runs' lines that is no bookkeeping: mean IoU, accuracy, loss, mse, `test/...`, others.

    Where only some of the runs with an accuracy have a mean IoU, the accuracy, which compares them all, comes first.
    """
    numbers = Counter(key for run in runs for key in set().union(*run.lines))
    kept = (key for key in numbers if key not in NOT_METRICS and not key.startswith(BOOKKEEPING))
    preferred = [key for key in PREFERRED if key != MIOU or numbers[MIOU] >= numbers[ACCURACY]]
    first = {key: place for place, key in enumerate(preferred)}
    return sorted(kept, key=lambda key: (first.get(key, len(first)), not key.startswith("test/"), key))


def trained(runs: Iterable[RecordedRun]) -> list[str]:
    """What the runs recorded of their training, such as `train/loss`: no quality, but a target may be set for it."""
    return sorted({key for run in runs for line in run.lines for key in line if key.startswith("train/")})


def figure_entries(run: RecordedRun) -> list[Any]:
    """What the run's config has under `figures:`."""
    entries = run.config.get("figures")
    return entries if isinstance(entries, list) else []


def qualities(runs: Iterable[RecordedRun]) -> list[Metric]:
    """What these runs are judged by: mse and all of `test/...`; where some run has none of it, its other metrics too.

    What the runs' own `figures:` take as an x axis or for panels is no quality, nor is the IoU of a single class.
    """
    every = list(runs)
    entries = [entry for run in every for entry in figure_entries(run) if isinstance(entry, dict)]
    axes = [entry.get(name) for entry in entries for name in ("x", "panel")]  # as they are written: lists too
    judged = [run for run in every if any(key.startswith("test/") for line in run.lines for key in line)]
    bare = [run for run in every if run not in judged] if len(judged) < len(every) else []
    keys = [key for key in recorded(judged) if key.startswith("test/") or key == MSE]
    keys += [key for key in recorded(bare) if key not in keys]
    return [metric(key) for key in keys if key not in axes and IOU not in key]
