"""The series of a group in a picture: means over seeds along a run or at its end, and each repetition by itself.

Shape legend: R runs (seeds) of a group, or repetitions; E evaluations.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcomp.core.validate import is_number
from fedcomp.display.metric import Metric
from fedcomp.records.metrics_file import PerRepetition
from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.group import RunGroup
from fedcomp.reporting.mean import mean_over_seeds
from fedcomp.reporting.pictures.picture import Series


def values(group: RunGroup, quality: str, x: str, average: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The quality of each seed [R, E] at the rounds that all of them evaluated, and the places on the x axis [E].

    Seeds without the quality, as in runs of an earlier version, are left out.

    Args:
        quality: key of the y axis, `test/accuracy`.
        x: key of the x axis, `bits/total`, `round`; where it counts bits or seconds, rounds after some were spent.
        average: each seed's running mean over its evaluations instead of the value of each.
    """
    every = [{line["round"]: line for line in run.lines if quality in line and x in line} for run in group.runs]
    runs = [run for run in every if run] or every[:1]
    rounds = sorted(set(runs[0]).intersection(*runs[1:]))
    values_RE = np.array([[run[round][quality] for round in rounds] for run in runs], dtype=float)
    places_E = np.array([[run[round][x] for round in rounds] for run in runs], dtype=float).mean(axis=0)
    if average:
        with np.errstate(invalid="ignore", over="ignore"):
            values_RE = values_RE.cumsum(axis=1) / np.arange(1, len(rounds) + 1)
    shown = places_E > 0 if x.startswith(("bits/", "time/")) else np.ones(len(places_E), dtype=bool)
    return values_RE[:, shown], places_E[shown]


def series(group: RunGroup, metric: Metric, x: str, average: bool = False) -> Series:
    """The group's mean over seeds and its deviation, in the metric's shown unit; arguments as in `values`."""
    values_RE, places_E = values(group, metric.key, x, average)
    with np.errstate(invalid="ignore", over="ignore"):
        deviation_E = values_RE.std(axis=0, ddof=1) if len(values_RE) > 1 else np.full(len(places_E), np.nan)
        mean_E = values_RE.mean(axis=0)
    return Series(group.label, places_E, metric.scale * mean_E, metric.scale * deviation_E, len(values_RE))


def variance(group: RunGroup, metric: Metric, x: str) -> Series | None:
    """The sample variance over seeds at each x, without a band; None unless two seeds have the metric."""
    values_RE, places_E = values(group, metric.key, x)
    if len(values_RE) < 2:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        variance_E = values_RE.var(axis=0, ddof=1)
    return Series(group.label, places_E, variance_E, np.full(len(places_E), np.nan), len(values_RE))


def best_at_rate(group: RunGroup, metric: Metric, rate: str) -> Series | None:
    """One point: mean over seeds of the best value and of the bits per parameter at the end."""
    sending = [run for run in group.runs if run.lines[-1].get(rate, 0) > 0]
    found = [(run.lines[-1][rate], value) for run in sending if (value := metric.best(run.lines)) is not None]
    if not found:
        return None
    sent, best = (mean_over_seeds(own) for own in zip(*found))
    y, spread = metric.scale * best.mean, metric.scale * best.spread
    return Series(group.label, np.array([sent.mean]), np.array([y]), np.array([spread]), len(found), "points")


def last_values(own: Sequence[RunGroup], x: str, metric: Metric, mark: str) -> list[Series]:
    """One series a label: mean and sample deviation over seeds of the last values, by increasing x."""
    points: dict[str, list[tuple[float, float, float, int]]] = {}
    for one in own:
        y = [run.lines[-1][metric.key] for run in one.runs if metric.key in run.lines[-1]]
        place = [value for run in one.runs if (value := last_number(x, run.lines[-1], one.flat)) is not None]
        if y and place:
            mean = mean_over_seeds(y)
            point = (mean_over_seeds(place).mean, metric.scale * mean.mean, metric.scale * mean.spread, len(y))
            points.setdefault(one.label, []).append(point)
    out = []
    for label, own_points in points.items():
        places, means, spreads, seeds = zip(*sorted(own_points))
        out.append(Series(label, np.array(places), np.array(means), np.array(spreads), min(seeds), mark))
    return out


def last_number(key: str, line: Mapping[str, float], flat: Mapping[str, Any]) -> float | None:
    """A metric of the line, else a config key's number; None if it has neither."""
    value = line.get(key, flat.get(key))
    return float(value) if is_number(value) else None


def each_run(group: RunGroup, metric: Metric, x: str) -> Series:
    """A thin line for each repetition of each of the group's runs, and their mean.

    A run without repetitions is one line. Rounds are those at which all were evaluated; where x counts what was spent,
    those after some was, and x is the mean over repetitions.
    """
    lines: list[dict[int, float]] = []
    places: list[dict[int, float]] = []
    for run in group.runs:
        if not any(metric.key in line for line in run.lines):
            continue
        found = {round: own[metric.key] for round, own in run.files.repetitions().items() if metric.key in own}
        own = {int(line["round"]): line for line in run.lines if metric.key in line}
        found = found or {round: [float(line[metric.key])] for round, line in own.items()}
        places.append({round: float(line[x]) for round, line in own.items() if x in line or x == "round"})
        lines += [
            {round: values[number] for round, values in found.items()}
            for number in range(len(next(iter(found.values()), [])))
        ]
    rounds = sorted(set.intersection(*(set(one) for one in [*lines, *places]))) if lines else []
    each_RE = metric.scale * np.array([[line[round] for round in rounds] for line in lines], dtype=float)
    x_E = np.array([[own[round] for round in rounds] for own in places], dtype=float).mean(axis=0)
    if x != "round" and len(rounds):
        each_RE, x_E = each_RE[:, x_E > 0], x_E[x_E > 0]
    mean_E = each_RE.mean(axis=0) if len(lines) else x_E
    return Series(group.label, x_E, mean_E, np.full(len(x_E), np.nan), len(lines), each=tuple(each_RE))


def last_places(group: RunGroup, x: str, y: str) -> Series | None:
    """Where each repetition ends in the plane of two metrics, with the median distance to their mean."""
    ends = [last for run in group.runs if (last := _last(run, x, y)) is not None]
    if not ends:
        return None
    x_R, y_R = (np.array([value for last in ends for value in last[key]]) for key in (x, y))
    radius = float(np.median(np.hypot(x_R - x_R.mean(), y_R - y_R.mean())))
    return Series(group.label, x_R, y_R, np.full(len(x_R), np.nan), len(x_R), "cloud", radius=radius)


def optimum(groups: Sequence[RunGroup], x: str, y: str) -> tuple[tuple[str, float, float], ...]:
    """The optimum in that plane as a star, if a run knows it: `optimum/0` beside `theta/0`."""
    keys = [key.replace("theta/", "optimum/") for key in (x, y)]
    for group in groups:
        for run in group.runs:
            last = _last(run, *keys)
            if last is not None and keys != [x, y]:
                return (("optimum", last[keys[0]][0], last[keys[1]][0]),)
    return ()


def _last(run: RecordedRun, *keys: str) -> PerRepetition | None:
    """The last evaluation of a run's repetitions, if it has these metrics."""
    found = run.files.repetitions()
    last = found[max(found)] if found else {}
    return last if all(key in last for key in keys) else None
