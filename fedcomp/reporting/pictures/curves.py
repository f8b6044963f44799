"""The pictures of every report: quality over bits, rounds and seconds, and best quality against bitrate."""

import hashlib
import re
from collections.abc import Sequence

from fedcomp.display.metric import Metric
from fedcomp.reporting.group import RunGroup, by_setting
from fedcomp.reporting.pictures.axes import RATE_TITLES, X_AXES, y_axis
from fedcomp.reporting.pictures.picture import MAX_LINES, Axis, Panel, Picture
from fedcomp.reporting.pictures.series import best_at_rate, series

NAME_LENGTH = 120
"""Characters of a part of a file's name: file systems hold 255 bytes, and a setting may have a list of columns."""
RATES = [(key, Axis(RATE_TITLES[key], log=True)) for key in ("bpp/total", "bpp/uplink")]


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
            points = [point for one in own if (point := best_at_rate(one, metric, key)) is not None]
            if points:
                panels.append(Panel(own[0].place, axis, y_axis(metric, points), tuple(points)))
    if not panels:
        return None
    title = f"best {metric.title} against bitrate"
    return Picture(
        "scatter", "Best against bitrate", title, tuple(panels), 2 if len(rates) > 1 else 3, order(groups, groups)
    )


def slug(text: str) -> str:
    """For file names: `mnist · dirichlet alpha=0.1` -> `mnist-dirichlet-alpha-0.1`, at most NAME_LENGTH long.

    A longer one ends in a hash instead, so that two that begin alike are two files. A text of other letters alone
    becomes a hash.
    """
    whole = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
    if 0 < len(whole) <= NAME_LENGTH or not text:
        return whole
    end = hashlib.sha256((whole or text).encode()).hexdigest()[:8]
    return f"{whole[: NAME_LENGTH - len(end) - 1]}-{end}".lstrip("-")
