"""Pictures on paper: PNG and PDF with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedcomp.display import figure, units
from fedcomp.reporting.pictures.legend import WIDE, Legend, axes_room, legend, of_column, panel_title
from fedcomp.reporting.pictures.picture import Axis, Panel, Picture, Series
from fedcomp.reporting.pictures.view import marked_places, view

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 2.95, 1.95
"""Of a panel's axes, in inches, as everything below: a fixed layout, since matplotlib's search for one is slow."""
LEFT, RIGHT, BOTTOM, TOP = 0.75, 0.3, 0.5, 0.1
"""Around a panel: what is written on its axes, on the right half of the last tick's label."""
UNLABELLED_LEFT = 0.4
TITLE_WIDTH = 22
"""Characters of a y axis's title that fit into a line."""
PANEL_TITLE, TITLE = 0.2, 0.3
TICK_WIDTH, NOTE_WIDTH = 0.55, 0.055
"""Of a tick's label on the x axis, such as 100 Mbit, and of a letter of the note about what is not shown."""


def draw(picture: Picture, paths: list[Path]) -> None:
    """Draw a picture and save it in each format wanted.

    Args:
        paths: of the same picture (.png, .pdf, .pgf).

    Raises:
        ValueError: a file cannot be written.
    """
    drawn = sheet(picture)
    for path in paths:
        figure.save(drawn, path)


def sheet(picture: Picture) -> Figure:
    """The picture, drawn: of its own `size`, in letters for a paper's column, or as wide as its panels need."""
    return _spread(picture) if picture.size is None else _in_column(picture, picture.size)


def _in_column(picture: Picture, size: tuple[float, float]) -> Figure:
    """Panels that share `size` inches, with letters of 7 and 8 points and the legend where the picture says."""
    page = figure.new_figure(*size)
    rows, columns = picture.grid
    names, room = of_column(picture), axes_room(picture)
    title_width = max(6, int(room[1] / 0.085))
    for index, panel in enumerate(picture.panels):
        axes = page.add_subplot(rows, columns, index + 1)
        _panel(axes, panel, picture.order, _labelled(picture, index, columns), title_width, room[0])
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            text.set_fontsize(8)
        axes.tick_params(which="both", labelsize=7)
    if picture.legend == "none":
        return page
    beside = {"below": "outside lower center", "right": "outside right center"}
    _legend(
        page if picture.legend in beside else page.axes[0],
        page,
        names,
        loc=beside.get(picture.legend, picture.legend),
        fontsize=7,
        frameon=picture.legend not in beside,
        framealpha=0.8,
        edgecolor="none",
        handlelength=2.2,
        columnspacing=1.2,
    )
    return page


def _spread(picture: Picture) -> Figure:
    """Panels of one size, however many, under one legend."""
    from matplotlib.figure import Figure

    rows, columns = picture.grid
    labelled = [index for index, panel in enumerate(picture.panels) if _labelled(picture, index, columns)]
    left = LEFT + (0.15 if any(len(panel.y.title) > TITLE_WIDTH for panel in picture.panels) else 0)
    lefts = [
        left if any(index in labelled for index in range(column, len(picture.panels), columns)) else UNLABELLED_LEFT
        for column in range(columns)
    ]
    right = RIGHT + 0.065 * max(
        (sum(len(label) + 2 for label, _ in panel.lines) for panel in picture.panels), default=0
    )
    above = TOP + PANEL_TITLE * max(len(panel_title(panel.title, WIDTH).splitlines()) for panel in picture.panels)
    width = sum(lefts) + columns * (WIDTH + right)
    names = legend(picture.labels, width, WIDE)
    below = 0.1 + names.height
    row_height = above + HEIGHT + BOTTOM
    height = rows * row_height + below + (TITLE if picture.title else 0)

    page = Figure(figsize=(width, height), dpi=figure.DPI, facecolor="white")
    for index, panel in enumerate(picture.panels):
        row, column = divmod(index, columns)
        x = sum(lefts[: column + 1]) + column * (WIDTH + right)
        y = below + (rows - 1 - row) * row_height + BOTTOM
        axes = page.add_axes((x / width, y / height, WIDTH / width, HEIGHT / height))
        _panel(axes, panel, picture.order, index in labelled)
    _legend(page, page, names, loc="lower center", fontsize=8, frameon=False, handlelength=2.6)
    if picture.title:
        title = figure.drawable(picture.title)
        page.text(0.5, 1 - 0.18 / height, title, ha="center", va="center", fontsize=10, color=figure.INK)
    return page


def _legend(host: Figure | Axes, page: Figure, names: Legend, **looks: Any) -> None:
    """The labels of all axes of the page, each once and in this order, in a legend of `host`; none without labels."""
    handles: dict[str, Artist] = {}
    for axes in page.axes:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    shown = {label: text for label, text in names.texts.items() if label in handles}
    if shown:
        own = [handles[label] for label in shown]
        looks |= {"ncols": names.columns, "labelcolor": figure.INK, "borderaxespad": 0.2}
        host.legend(own, list(shown.values()), **looks)


def _labelled(picture: Picture, index: int, columns: int) -> bool:
    """Whether a panel's y axis has its title: at the left, and where it is another than the neighbour's."""
    return index % columns == 0 or picture.panels[index].y != picture.panels[index - 1].y


def _panel(
    axes: Axes,
    panel: Panel,
    order: tuple[str, ...],
    labelled: bool,
    title_width: int = TITLE_WIDTH,
    width: float = WIDTH,
) -> None:
    """One pair of axes, about `width` inches wide, with all that is on it."""
    y_title = figure.wrapped(panel.y.title, title_width) if labelled else ""
    figure.style(axes, figure.drawable(panel.x.title), y_title)
    if panel.title:
        axes.set_title(panel_title(panel.title, width), fontsize=8.5, color=figure.INK, loc="left")
    floor = _floor(panel)
    for number, series in enumerate(panel.series):
        marked, index = marked_places(series.x, panel.x.log, number, len(panel.series)), order.index(series.label)
        if panel.y.log:  # which has no place for variances before the first round: gaps
            series = replace(series, y=np.where(series.y > 0, series.y, np.nan))
        _series(axes, series, index, floor, marked)
    x, y, cut = view(panel)
    _scale(axes, "x", x, int(width / TICK_WIDTH))
    _scale(axes, "y", y)
    for _, value in panel.lines:
        axes.axhline(value, color="#888888", linewidth=0.9, linestyle=(0, (5, 3)), zorder=1)
    if cut:
        _note(axes, cut, width)
    for label, value in _apart(panel.lines, axes):
        axes.annotate(
            figure.drawable(label),
            (1, value),
            xycoords=("axes fraction", "data"),
            xytext=(2, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color="#666666",
            annotation_clip=False,
        )
    for _, *star in panel.stars:
        axes.plot(*star, color="black", marker="*", markersize=8, linestyle="none", zorder=4)
    if any(series.mark == "cloud" for series in panel.series):
        axes.set_aspect("equal", adjustable="datalim")
        axes.locator_params(nbins=5)
        marks = " ".join(["+ mean", *(f"★ {label}" for label, _, _ in panel.stars)])
        axes.text(1, 0.02, figure.drawable(marks), transform=axes.transAxes, ha="right", fontsize=7.5, color="#666666")
    for place in panel.marks:
        axes.axvline(place, color="#888888", linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)


def _note(axes: Axes, words: str, width: float) -> None:
    """Small words in the corner of axes of `width` inches that the fewest lines cross, at the bottom right if any."""
    from matplotlib.transforms import Bbox

    room = 0.04 + NOTE_WIDTH * len(words) / width

    def lines_in(corner: tuple[int, int]) -> int:
        right, top = corner
        box = Bbox.from_bounds(1 - room if right else 0, 0.88 if top else 0, room, 0.12)
        paths = (line.get_path().transformed(line.get_transform() - axes.transAxes) for line in axes.lines)
        return sum(path.intersects_bbox(box, filled=False) for path in paths)

    right, top = min(((1, 0), (0, 1), (1, 1), (0, 0)), key=lines_in)
    place = {"ha": "right" if right else "left", "va": "top" if top else "bottom", "transform": axes.transAxes}
    axes.text(0.98 if right else 0.02, 0.98 if top else 0.02, words, place, fontsize=6.5, color="#666666")


def _series(axes: Axes, series: Series, index: int, floor: float, marked: list[int]) -> None:
    """One method in its colour: a line with a band, points with bars, or a closed form without either.

    Args:
        index: of its colour, dash and marker. floor: where bands end below. marked: evaluations with a marker.
    """
    colour = figure.COLOURS[index % len(figure.COLOURS)]
    turn = index // len(figure.COLOURS)
    dashes = figure.DASHES[turn % len(figure.DASHES)]
    marker = figure.MARKERS[index % len(figure.MARKERS)]
    filled: dict[str, Any] = {} if turn % 2 == 0 else {"markerfacecolor": "white"}
    if series.mark == "beside":
        axes.plot(series.x, series.y, color=colour, linestyle=(0, (3, 2)), linewidth=1.1, alpha=0.8)
        return
    low, high = np.maximum(series.y - series.deviation, floor), series.y + series.deviation
    if series.mark == "cloud":
        _cloud(axes, series, colour, marker)
        return
    if series.mark == "line":
        for one in series.each:
            axes.plot(series.x, one, color=colour, linewidth=0.35, alpha=0.35, zorder=1.5)
        if not series.each:
            axes.fill_between(series.x, low, high, color=colour, alpha=0.16, linewidth=0)
        thick = 2.0 if series.each else 1.5
        line: dict[str, Any] = {"linestyle": dashes, "linewidth": thick, "label": series.label}
        axes.plot(series.x, series.y, color=colour, marker=marker, markersize=4, markevery=marked, **line, **filled)
        return
    if np.isfinite(series.deviation).any():
        below, above = np.maximum(series.y - low, 0), high - series.y
        axes.errorbar(
            series.x,
            series.y,
            (np.nan_to_num(below), np.nan_to_num(above)),
            fmt="none",
            ecolor=colour,
            elinewidth=1,
            capsize=2,
        )
    joined: dict[str, Any] = (
        {"linestyle": "none"} if series.mark == "points" else {"linestyle": dashes, "linewidth": 1.4}
    )
    axes.plot(series.x, series.y, color=colour, marker=marker, markersize=5, label=series.label, **joined, **filled)


def _cloud(axes: Axes, series: Series, colour: str, marker: str) -> None:
    """A point a repetition, a cross for their mean, and the circle around it that holds half of them."""
    from matplotlib.patches import Circle

    centre = float(series.x.mean()), float(series.y.mean())
    axes.add_patch(Circle(centre, series.radius, facecolor="none", edgecolor=colour, linewidth=1.3))
    axes.plot(*centre, color=colour, marker="+", markersize=7, markeredgewidth=1.3)
    axes.plot(series.x, series.y, color=colour, marker=marker, markersize=2.6, linestyle="none", label=series.label)


def _scale(axes: Axes, which: Literal["x", "y"], axis: Axis, most: int = 8) -> None:
    """Its ends, logarithmic or not, with readable ticks; after the data is drawn."""
    if axis.low is not None or axis.high is not None:
        axes.set(**{f"{which}lim": (axis.low, axis.high)})
    if axis.log and axes.lines:
        figure.log_axis(axes, which, units.bits if axis.unit == "bits" else None, most)
    else:
        axes.ticklabel_format(axis=which, scilimits=(-3, 6))
        if axis.unit == "rounds":
            figure.integer_axis(axes, which)


def _apart(lines: Sequence[tuple[str, float]], axes: Axes) -> list[tuple[str, float]]:
    """Labels and places of constants; labels that would overlap are joined: `d - 1, d + 1`."""
    heights = [float(axes.transData.transform((0, value))[1]) for _, value in lines]
    out: list[tuple[str, float]] = []
    before = -math.inf
    for height, (label, value) in sorted(zip(heights, lines)):
        if height - before < 0.14 * figure.DPI:  # inches: a line of text
            out[-1] = (f"{out[-1][0]}, {label}", out[-1][1])
        else:
            out.append((label, value))
            before = height
    return out


def _floor(panel: Panel) -> float:
    """Where bands end below on a logarithmic axis, which has no place for zero: half the smallest mean."""
    if not panel.y.log:
        return -np.inf
    positive = [one.y[one.y > 0].min() for one in panel.series if (one.y > 0).any()]
    return 0.5 * min(positive) if positive else -np.inf
