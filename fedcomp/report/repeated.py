"""Every repetition by itself: thin lines under a mean, and the places where repetitions end.

Shape legend: R repetitions, E evaluations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcomp.records.reader import RecordedRun
from fedcomp.records.repetitions import PerRepetition
from fedcomp.report.group import RunGroup
from fedcomp.report.metrics import Metric
from fedcomp.report.picture import Series


def each_run(group: RunGroup, metric: Metric, x: str) -> Series:
    """A thin line for each repetition of each of the group's runs, and their mean.

    A run without repetitions is one line. Rounds are those at which all were evaluated; where x counts what was spent,
    those after some was, and x is the mean over repetitions.
    """
    lines: list[dict[int, float]] = []
    places: list[dict[int, float]] = []
    for run in group.runs:
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
