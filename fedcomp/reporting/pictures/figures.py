"""The pictures that the entries of `figures:` describe (`figure_entry.py`), beside the ones every report has."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedcomp.core.validate import suggest
from fedcomp.display.metric import Metric, metric
from fedcomp.reporting.group import RunGroup, by_setting, regroup
from fedcomp.reporting.labels import in_order, show_value
from fedcomp.reporting.metrics import figure_entries
from fedcomp.reporting.names import natural
from fedcomp.reporting.pictures.axes import x_axis, y_axis
from fedcomp.reporting.pictures.curves import order, slug
from fedcomp.reporting.pictures.figure_entry import SHORT, Figure, Limits, parse
from fedcomp.reporting.pictures.legend import check_room
from fedcomp.reporting.pictures.picture import Axis, Panel, Picture, Series, split
from fedcomp.reporting.pictures.series import each_run, last_number, last_places, last_values, optimum, series, variance


def pictures(groups: Sequence[RunGroup]) -> tuple[list[Picture], list[str]]:
    """The pictures that the groups' configs ask for, and a line on each one that cannot be drawn."""
    asking: dict[str, tuple[Any, list[RunGroup]]] = {}
    for one in groups:
        for entry in figure_entries(one.runs[0]):
            asking.setdefault(json.dumps(entry, sort_keys=True, default=str), (entry, []))[1].append(one)
    drawn: list[Picture] = []
    notes = []
    for entry, own in asking.values():
        try:
            drawn.append(asked_picture(entry, own))
        except ValueError as error:
            notes.append(str(error))
    return drawn, notes


def asked_picture(entry: Any, groups: Sequence[RunGroup]) -> Picture:
    """The picture of one entry. Raises ValueError: it is wrong, no group has what it shows, or names have no room."""
    figure = parse(entry)
    picture = build(figure, groups)
    if picture is None:
        raise ValueError(f"figure {figure.name!r} is empty: no finished run has {_lacking(figure, groups)}")
    for part in split(picture):
        check_room(part)
    return picture


def _lacking(figure: Figure, groups: Sequence[RunGroup]) -> str:
    """The first key of an empty figure that no run has, with similar ones; else all that it shows."""
    known = {key for one in groups for run in one.runs for line in run.lines for key in line}
    options = {key for one in groups for key in one.flat}
    x = () if figure.x in options else (figure.x,)
    lacking = next((key for key in (*x, *figure.y) if key not in known), None)
    if lacking is None or (lacking != figure.x and figure.kind in ("runs", "circle")):  # those are of repetitions
        return f"{', '.join((figure.x, *figure.y))} together"
    if lacking == SHORT["seconds"]:
        return f"{lacking}: seconds need a network, which `fedcomp-replay ... --out DIR` adds"
    several = "; several are a list, y=[a,b]" if "," in lacking else ""
    return f"{lacking}{suggest(lacking, sorted({*known, *SHORT, *options} if lacking == figure.x else known))}{several}"


def build(figure: Figure, groups: Sequence[RunGroup]) -> Picture | None:
    """The figure of these groups; None if none of them has its metrics. Those that have not are left out.

    Raises ValueError: it orders or renames a method that there is not.
    """
    panels_of = {"circle": _circles, "last": _last}.get(figure.kind, _along)
    panels = [
        replace(panel, x=_ended("x", panel.x, figure.xlim), y=_ended("y", panel.y, figure.ylim))
        for panel in panels_of(figure, groups)
    ]
    if not panels:
        return None
    labels = tuple(dict.fromkeys(one.label for panel in panels for one in panel.series))
    shared = order(groups, groups)
    shared = shared if set(labels) <= set(shared) else labels
    names = in_order(labels, figure.order, dict(figure.rename))
    places = list(names)
    for number, panel in enumerate(panels):
        ordered = sorted(panel.series, key=lambda one: places.index(one.label))
        panels[number] = replace(panel, series=tuple(replace(one, label=names[one.label]) for one in ordered))
    shared = tuple(dict.fromkeys([*names.values(), *(label for label in shared if label not in names)]))
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    return Picture(slug(figure.name), figure.name, "", tuple(panels), columns, shared, figure.size, figure.legend)


def _ended(which: str, axis: Axis, limits: Limits | None) -> Axis:
    """The axis with the ends that the figure gives, in the unit that is shown.

    Raises ValueError: accuracies are given in percent, which would show nothing, or a line at the bottom; or an end of
        a logarithmic axis is 0 or less.
    """
    scale = 100 if axis.unit == "percent" else 1
    ends = ":".join("" if end is None else f"{end:g}" for end in limits or ())
    if limits and scale == 100 and any(end is not None and end >= most for end, most in zip(limits, (1, 2))):
        raise ValueError(f"ends {ends} of {axis.title}: an accuracy is a fraction, for 80 to 90 % give 0.8:0.9")
    if axis.log and any(end is not None and end <= 0 for end in limits or ()):
        raise ValueError(
            f"ends {ends} of {axis.title}: this axis is logarithmic, without 0: leave it out, or add log_{which}=false "
            "to the figure"
        )
    low, high = (None if end is None else end * scale for end in limits or (None, None))
    return replace(axis, low=low, high=high)


def _along(figure: Figure, groups: Sequence[RunGroup]) -> list[Panel]:
    """`curve`, `runs` and `variance`: for each setting and metric a panel."""
    panels = []
    for own in by_setting(groups).values():
        for key in figure.y:
            title = metric(key)
            if figure.kind == "variance":
                title = Metric(key, f"{title.words}, variance over seeds", 1, False)
                lines = [line for one in own if (line := variance(one, title, figure.x)) is not None]
            elif figure.kind == "runs":
                lines = [each_run(one, title, figure.x) for one in own]
            else:
                lines = [series(one, title, figure.x, average=figure.average) for one in own]
            lines = [line for line in lines if len(line.x)]
            if lines:
                panels.append(_panel(figure, own[0].place, y_axis(title, lines, figure.log_y), lines))
    return panels


def _panel(figure: Figure, title: str, y: Axis, lines: Sequence[Series]) -> Panel:
    return Panel(title, x_axis(figure.x, lines, figure.log_x), y, tuple(lines), figure.lines, figure.marks)


def _circles(figure: Figure, groups: Sequence[RunGroup]) -> list[Panel]:
    """`circle`: for each setting a panel, with the optimum if the runs know it."""
    x, y = (metric(key) for key in figure.y)
    panels = []
    for own in by_setting(groups).values():
        clouds = tuple(cloud for one in own if (cloud := last_places(one, x.key, y.key)) is not None)
        if clouds:
            stars = optimum(own, x.key, y.key)
            panels.append(Panel(own[0].place, Axis(x.title), Axis(y.title), clouds, stars=stars))
    return panels


def _last(figure: Figure, groups: Sequence[RunGroup]) -> list[Panel]:
    """Last values over x, one line a method and panel."""
    away = {key for key in (figure.x, figure.panel, *figure.without) if key} | _behind(figure.x, groups)
    places: dict[str, list[RunGroup]] = {}
    for one in regroup(groups, away):
        places.setdefault(_panel_title(figure.panel, one), []).append(one)
    panels = []
    for title, own in sorted(places.items(), key=lambda item: natural(item[0])):
        for index, key in enumerate(figure.y):
            lines = last_values(own, figure.x, metric(key), "both")
            also = last_values(own, figure.x, metric(figure.beside[index]), "beside") if figure.beside[index:] else []
            lines += also
            if lines:
                y = y_axis(metric(key), lines, figure.log_y)
                if also:
                    y = replace(y, title=f"{y.title} (dashed: {metric(figure.beside[index]).title})")
                panels.append(_panel(figure, title, y, lines))
    return panels


def _behind(x: str, groups: Sequence[RunGroup]) -> set[str]:
    """The config keys that move x, where x is a metric: x differs between two groups that differ in this key alone.

    Such a key (`dataset.correlation` behind `vectors/correlation`) makes the points of a line, not its name. What
    picks a part (`_target_`) always names lines.
    """
    flats = [one.flat for one in groups]
    keys = {key for flat in flats for key in flat if any(other.get(key) != flat[key] for other in flats)}
    places = [last_number(x, one.runs[0].lines[-1], {}) for one in groups]
    found = set()
    for key in keys:
        if key.endswith("_target_"):
            continue
        rest: dict[str, set[float | None]] = {}
        for flat, place in zip(flats, places):
            others = json.dumps({name: flat[name] for name in flat if name != key}, sort_keys=True, default=str)
            rest.setdefault(others, set()).add(place)
        if any(len(seen) > 1 for seen in rest.values()):
            found.add(key)
    return found


def _panel_title(key: str | None, one: RunGroup) -> str:
    """The panel that a group belongs to: its setting, and `fraction = 0.1`."""
    if key is None:
        return one.place
    value = one.flat.get(key)
    if value is None:
        values = [run.lines[-1][key] for run in one.runs if key in run.lines[-1]]
        value = float(np.mean(values)) if values else None
    own = f"{key.split('.')[-1].replace('_', ' ')} = {show_value(value)}" if value is not None else ""
    return " · ".join(part for part in (one.place, own) if part)
