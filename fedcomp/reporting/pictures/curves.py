"""Quality over bits and rounds, mean over seeds with a band, and best quality against bitrate, as pictures.

Of studies also every repetition by itself: thin lines under a mean, and the places where repetitions end.

Shape legend: R runs (seeds) of a group, or repetitions; E evaluations.
"""

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from fedcomp.records.metrics_file import PerRepetition
from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.group import RunGroup, by_setting
from fedcomp.reporting.metrics import Metric
from fedcomp.reporting.pictures.picture import MAX_LINES, Axis, Panel, Picture, Series, wide

X_AXES = (
    ("bits/uplink", Axis("uplink bits", "bits", log=True)),
    ("bits/downlink", Axis("downlink bits", "bits", log=True)),
    ("bits/total", Axis("total bits (uplink + downlink)", "bits", log=True)),
    ("round", Axis("round", "rounds")),
    ("time/total", Axis("seconds on the network", log=True)),
)
NAME_LENGTH = 120
"""Characters of a part of a file's name: file systems hold 255 bytes, and a setting may have a list of columns."""
RATE_TITLES = {
    "bpp/total": "bits per parameter, both ways",
    "bpp/uplink": "bits per parameter, uplink",
    "bpp/downlink": "bits per parameter, downlink",
}
RATES = [(key, Axis(RATE_TITLES[key], log=True)) for key in ("bpp/total", "bpp/uplink")]


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


def y_axis(metric: Metric, lines: Sequence[Series], log: bool | None = None) -> Axis:
    """The metric's axis: logarithmic as `log` says, or for None where the values are far apart."""
    if log is None:
        log = metric.scale == 1 and wide(value for one in lines for value in one.y)
    return Axis(metric.title, "percent" if metric.scale == 100 else "number", log)


def order(groups: Sequence[RunGroup], own: Sequence[RunGroup]) -> tuple[str, ...]:
    """The labels that give colours: of all groups while they are few, so that a method keeps its own everywhere."""
    every = tuple(dict.fromkeys(one.label for one in groups))
    return every if len(every) <= MAX_LINES else tuple(dict.fromkeys(one.label for one in own))


def curves(groups: Sequence[RunGroup], qualities: Sequence[Metric]) -> list[Picture]:
    """A picture for each setting and quality: over bits up, down and both ways, rounds, and seconds on the network.

    The first quality's are named `curves`, others after their metric: `curves-loss-mnist-iid`.
    """
    pictures = []
    for metric in qualities:
        for setting, own in by_setting(groups).items():
            panels = []
            for key, axis in X_AXES:
                lines = [line for one in own if len((line := series(one, metric, key)).x)]
                if any(len(line.x) > 1 for line in lines):
                    panels.append(Panel("", axis, y_axis(metric, lines), tuple(lines)))
            if panels:
                first = "curves" if metric is qualities[0] else f"curves-{slug(metric.key.removeprefix('test/'))}"
                place = own[0].place
                stem = f"{first}-{slug(place)}" if setting else first
                pictures.append(Picture(stem, "Curves", place, tuple(panels), 2, order(groups, own)))
    return pictures


def overview(groups: Sequence[RunGroup], metric: Metric) -> Picture | None:
    """A panel for each setting: the quality over total bits; None for a single setting."""
    panels = []
    for own in by_setting(groups).values():
        lines = [line for one in own if len((line := series(one, metric, "bits/total")).x)]
        if any(len(line.x) > 1 for line in lines):
            panels.append(Panel(own[0].place, X_AXES[2][1], y_axis(metric, lines), tuple(lines)))
    if len(panels) < 2:
        return None
    return Picture(
        "curves", "", "", tuple(panels), 2 if len(panels) == 4 else min(3, len(panels)), order(groups, groups)
    )


def scatter(groups: Sequence[RunGroup], metric: Metric) -> Picture | None:
    """The papers' picture: each method's best quality against its bits per parameter; None where nothing was sent."""
    panels = []
    places = by_setting(groups)
    rates = RATES if len(places) <= 6 else RATES[:1]  # of many settings the rate of both ways alone
    for own in places.values():
        for key, axis in rates:
            points = [point for one in own if (point := _best_at_rate(one, metric, key)) is not None]
            if points:
                panels.append(Panel(own[0].place, axis, y_axis(metric, points), tuple(points)))
    if not panels:
        return None
    title = f"best {metric.title} against bitrate"
    return Picture(
        "scatter", "Best against bitrate", title, tuple(panels), 2 if len(rates) > 1 else 3, order(groups, groups)
    )


def _best_at_rate(group: RunGroup, metric: Metric, rate: str) -> Series | None:
    """One point: mean over seeds of the best value and of the bits per parameter at the end."""
    runs = [run for run in group.runs if run.lines[-1].get(rate, 0) > 0]
    runs = [run for run in runs if any(metric.key in line for line in run.lines)]
    if not runs:
        return None
    best = np.array([metric.best(line[metric.key] for line in run.lines if metric.key in line) for run in runs])
    sent = float(np.mean([run.lines[-1][rate] for run in runs]))
    deviation = best.std(ddof=1) if len(runs) > 1 else np.nan
    y, spread = metric.scale * best.mean(), metric.scale * deviation
    return Series(group.label, np.array([sent]), np.array([y]), np.array([spread]), len(runs), "points")


def slug(text: str) -> str:
    """For file names: `mnist · dirichlet alpha=0.1` -> `mnist-dirichlet-alpha-0.1`, at most NAME_LENGTH long.

    A longer one ends in a hash instead, so that two that begin alike are two files.
    """
    whole = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
    if len(whole) <= NAME_LENGTH:
        return whole
    end = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: NAME_LENGTH - len(end) - 1]}-{end}"


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
