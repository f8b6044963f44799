"""The front of accuracy and bits, per setting: the methods that no other dominates, as picture and table."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedcomp.display import units
from fedcomp.display.metric import ACCURACY, metric
from fedcomp.objective.pareto import Ends, Pareto, front, hypervolume
from fedcomp.reporting.group import RunGroup, by_setting
from fedcomp.reporting.mean import Mean, mean_over_seeds
from fedcomp.reporting.pictures.axes import KNOWN
from fedcomp.reporting.pictures.picture import Axis, Panel, Picture, Series
from fedcomp.reporting.tables import formats
from fedcomp.reporting.tables.rows import Rows

ON, OFF = "front", "dominated"


@dataclass(frozen=True)
class Point:
    """A method: best accuracy and bits of the whole run, over seeds."""

    group: RunGroup
    accuracy: Mean
    bits: Mean

    @property
    def ends(self) -> Ends:
        """The means."""
        return Ends(self.accuracy.mean, self.bits.mean)


@dataclass(frozen=True)
class Front:
    """The methods of one setting.

    Attributes:
        objective: which bits count, and the reference point. points: the methods on the front, by increasing bits.
        dominated: the others.
    """

    objective: Pareto
    points: tuple[Point, ...]
    dominated: tuple[Point, ...]

    @property
    def place(self) -> str:
        """The setting in words; empty where there is one alone."""
        return self.points[0].group.place

    @property
    def hypervolume(self) -> float:
        """Accuracy times decades of bits."""
        return hypervolume([one.ends for one in self.points], self.reference)

    @property
    def reference(self) -> Ends:
        """Where the hypervolume begins."""
        return self.objective.reference(one.ends for one in (*self.points, *self.dominated))


def fronts(groups: Sequence[RunGroup], wanted: bool = False) -> list[Front]:
    """The front of each setting, of methods whose every seed has both ends.

    Args:
        wanted: of all settings; else of those alone in which some run was made with `objective=pareto`.
    """
    found = []
    for own in by_setting(groups).values():
        objective = next((asked for one in own if (asked := _asked(one)) is not None), Pareto() if wanted else None)
        points = [point for one in own if objective and (point := _point(one, objective)) is not None]
        if objective and points:
            on = front([point.ends for point in points])
            off = [point for place, point in enumerate(points) if place not in on]
            found.append(Front(objective, tuple(points[place] for place in on), tuple(off)))
    return found


def picture(fronts: Sequence[Front]) -> Picture:
    """A panel for each setting: the front joined by a line, the dominated methods as points."""
    accuracy = metric(ACCURACY)
    panels = []
    for one in fronts:
        key = f"bits/{one.objective.way}"
        series = [_series(ON, one.points, "both"), *([_series(OFF, one.dominated, "points")] if one.dominated else [])]
        title = f"{one.place} · " if one.place else ""
        title += f"hypervolume {units.significant(one.hypervolume)}"
        x = KNOWN.get(key, Axis(f"{one.objective.way} bits", "bits", log=True))
        panels.append(Panel(title, x, Axis(f"best {accuracy.title}", "percent"), tuple(series)))
    return Picture("front", "Front", "front of accuracy and bits", tuple(panels), min(3, len(panels)), (ON, OFF))


def lines(fronts: Sequence[Front]) -> list[str]:
    """A line about each front."""
    return [
        (f"{one.place}: " if one.place else "")
        + one.objective.describe([point.ends for point in (*one.points, *one.dominated)])
        for one in fronts
    ]


def rows(fronts: Sequence[Front]) -> Rows:
    """The methods on the fronts as a table, whose first column is the setting, if there are several; the CSV has the
    dominated methods too, with `front` 0, and the hypervolume of the setting.
    """
    placed = any(one.place for one in fronts)
    titles = ["method", f"best {metric(ACCURACY).title}", "bits", "which bits", "seeds"]
    cells = [
        [
            *([one.place] if placed else []),
            point.group.label,
            _shown(point.accuracy, units.percent),
            _shown(point.bits, units.bits),
            one.objective.way,
            str(point.accuracy.num_seeds),
        ]
        for one in fronts
        for point in one.points
    ]
    raw = [_raw(one, point) for one in fronts for point in (*one.points, *one.dominated)]
    caption = "Front of accuracy and bits: no other method is better in one and as good in the other."
    return Rows(["setting", *titles] if placed else titles, cells, 1 + placed, int(placed), caption, raw)


def to_markdown(fronts: Sequence[Front]) -> str:
    """The table, and a line about each front."""
    said = "".join(f"- {formats.escape_markdown_line(line)}\n" for line in lines(fronts))
    return f"# Front of accuracy and bits\n\n{formats.to_markdown(rows(fronts))}\n{said}"


def _raw(one: Front, point: Point) -> dict[str, object]:
    """A method in the CSV."""
    return {
        "setting": one.place,
        "method": point.group.label,
        "seeds": point.accuracy.num_seeds,
        "way": one.objective.way,
        "front": int(point in one.points),
        "accuracy": point.accuracy.mean,
        "accuracy_std": point.accuracy.deviation,
        "bits": point.bits.mean,
        "bits_std": point.bits.deviation,
        "hypervolume": one.hypervolume,
        "accuracy_from": one.reference.accuracy,
        "bits_to": one.reference.bits,
    }


def _asked(group: RunGroup) -> Pareto | None:
    """The objective of the group's runs, if it is this one."""
    for run in group.runs:
        node = run.config.get("objective")
        if not isinstance(node, dict):
            continue
        names = str(node.get("_target_")).split(".")
        if (names[0], names[-1]) == ("fedcomp", "Pareto"):
            return Pareto(**{name: node[name] for name in Pareto.__dataclass_fields__ if name in node})
    return None


def _point(group: RunGroup, objective: Pareto) -> Point | None:
    """The group's point; None if a seed lacks an end."""
    ends = [objective(run.lines) for run in group.runs]
    if any(math.isnan(end) for one in ends for end in one):
        return None
    return Point(group, *(mean_over_seeds(list(values)) for values in zip(*ends)))


def _series(label: str, points: Sequence[Point], mark: str) -> Series:
    x = np.array([point.bits.mean for point in points])
    y = 100 * np.array([point.accuracy.mean for point in points])
    deviation = 100 * np.array([point.accuracy.spread for point in points])
    return Series(label, x, y, deviation, min(point.accuracy.num_seeds for point in points), mark)


def _shown(mean: Mean, show: Callable[[float], str]) -> str:
    return mean.shown(show) if mean.deviation else show(mean.mean)
