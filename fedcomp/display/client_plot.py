"""The picture of how well a model does for each client and for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedcomp.display import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BINS = 20
MOST_CLASSES = 25
"""With more classes than this their bars have no names."""


def plot_clients(
    values: np.ndarray,
    path: Path,
    axis: str,
    marks: Mapping[str, float],
    classes: Sequence[tuple[str, float]],
    title: str,
) -> None:
    """A histogram over clients, with a line at each mark, beside a bar for each class.

    Args:
        values: [N] of each client, as they are shown (accuracy in percent, or loss).
        path: of the picture to write (.png or .pdf).
        axis: the name of the values. marks: {words: value}, such as the mean.
        classes: (name, value) of each class; none: no bars.
        title: heading.

    Raises:
        ValueError: there is no client, or the picture cannot be written.
    """
    if not len(values):
        raise ValueError("there is no client to draw")
    height = 0.24 * len(classes) if len(classes) <= MOST_CLASSES else 0.0
    picture = figure.new_figure(7.2 if classes else 4.4, max(2.8, height))
    if classes:
        left, right = picture.subplots(1, 2, width_ratios=[1.5, 1])
        _bars(right, classes, axis)
    else:
        left = picture.add_subplot()
    num_bins = max(5, min(MOST_BINS, round(2 * len(values) ** 0.5)))
    left.hist(values, bins=num_bins, color="#A9B4C0", edgecolor="white", linewidth=0.6)
    figure.style(left, axis, "clients")
    figure.integer_axis(left, "y")
    for (words, value), colour, dash in zip(marks.items(), figure.COLOURS, figure.DASHES):
        left.axvline(value, color=colour, linestyle=dash, linewidth=1.4, label=f"{words} {value:.4g}")
    left.legend(fontsize=7, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(marks))
    picture.suptitle(figure.drawable(title), fontsize=10, color=figure.INK, fontweight="bold")
    figure.save(picture, path)


def _bars(axes: Axes, classes: Sequence[tuple[str, float]], axis: str) -> None:
    places = np.arange(len(classes))
    axes.barh(places, [value for _, value in classes], color=figure.COLOURS[0], height=0.7, linewidth=0)
    figure.style(axes, axis, "class")
    axes.grid(False, axis="y")
    axes.set_ylim(len(classes) - 0.5, -0.5)
    if len(classes) <= MOST_CLASSES:
        axes.set_yticks(places, [figure.drawable(name) for name, _ in classes])
    else:
        figure.integer_axis(axes, "y")
