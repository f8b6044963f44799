"""What a picture shows, before anything is drawn; matplotlib (`draw.py`) and the page (`page.py`) draw the same."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

MAX_LINES = 14
"""Lines in one panel that can still be told apart: seven colours, twice, by dashes and markers."""
LOG_DECADES = 1.5
"""Values that span more decades than this stand on a logarithmic axis."""


@dataclass(frozen=True)
class Axis:
    """One axis of a panel.

    Attributes:
        title: with its unit.
        unit: how numbers on it read: `number`, `bits` (10 kbit), `percent` (97.31), `rounds` (whole).
        log: logarithmic.
        low, high: where it begins and ends, in its unit; None: by what is on it.
    """

    title: str
    unit: str = "number"
    log: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """One method in one panel.

    Attributes:
        label: what the legend calls it; all series of a label look alike.
        x: [E] places, increasing.
        y: [E] means over seeds, NaN where some seed has NaN.
        deviation: [E] sample deviation over seeds, NaN for one seed: a band, or an error bar.
        num_seeds: how many seeds the means are over.
        mark: `line`, `points` (not joined), `both`, `beside` (dashed, no markers: a closed form next to `both`), or
            `cloud`: a point a repetition, with their mean and, around it, the circle that holds half of them.
        each: of `line`: the thin lines of which it is the mean, [R] arrays [E]; then it has no band.
        radius: of `cloud`: the circle's.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    deviation: np.ndarray
    num_seeds: int
    mark: str = "line"
    each: tuple[np.ndarray, ...] = ()
    radius: float = 0.0


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: what sets it apart from the picture's other panels, beside its axes; may be empty.
        lines: (label, value) of constants, dashed across the panel.
        marks: places on the x axis with a dotted line.
        stars: (label, x, y) of single points, such as the optimum.
    """

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    lines: tuple[tuple[str, float], ...] = ()
    marks: tuple[float, ...] = ()
    stars: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True)
class Picture:
    """Panels under one legend.

    Attributes:
        name: of its files, without ending.
        section: heading under which the page shows it; pictures of one section are chosen between by menus.
        title: heading.
        panels: in reading order.
        columns: how many panels stand side by side.
        order: labels; a label's place gives its colour, dash and marker, the same in all pictures that share `order`.
        size: width and height of the whole picture in inches, for a paper's column; None: by its panels.
        legend: of a picture of that size, where it stands: below, right, none, or a place inside, as matplotlib's loc.
    """

    name: str
    section: str
    title: str
    panels: tuple[Panel, ...]
    columns: int
    order: tuple[str, ...]
    size: tuple[float, float] | None = None
    legend: str = "below"

    @property
    def labels(self) -> list[str]:
        """Those of `order` that have a series in some panel."""
        present = {series.label for panel in self.panels for series in panel.series}
        return [label for label in self.order if label in present]

    @property
    def grid(self) -> tuple[int, int]:
        """How many rows and columns the panels stand in."""
        columns = min(self.columns, len(self.panels))
        return -(-len(self.panels) // columns), columns


def split(picture: Picture, max_panels: int = 12) -> list[Picture]:
    """The picture as several, none with more lines than can be told apart or with more than `max_panels` panels."""
    parts = [picture]
    if len(picture.order) > MAX_LINES:
        parts = [_only(picture, chunk) for chunk in _even(picture.labels, MAX_LINES)] or [picture]
    starts = range(0, max(1, len(picture.panels)), max_panels)
    pages = [replace(part, panels=part.panels[start : start + max_panels]) for part in parts for start in starts]
    pages = [page for page in pages if page.panels] or pages[:1]
    if len(pages) == 1:
        return pages
    heading = picture.title or picture.section or picture.name
    return [
        replace(page, name=f"{page.name}-{number}", title=f"{heading} ({number} of {len(pages)})")
        for number, page in enumerate(pages, start=1)
    ]


def wide(values: Iterable[float]) -> bool:
    """Whether finite positive values span more than LOG_DECADES; False as soon as one is not positive."""
    finite = [float(value) for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and math.log10(max(finite) / min(finite)) > LOG_DECADES


def _only(picture: Picture, labels: Sequence[str]) -> Picture:
    """The picture with these methods alone."""
    kept = set(labels)
    panels = (
        replace(panel, series=tuple(series for series in panel.series if series.label in kept))
        for panel in picture.panels
    )
    return replace(picture, panels=tuple(panel for panel in panels if panel.series), order=tuple(labels))


def _even(items: Sequence, most: int) -> list[Sequence]:
    """The items in as few runs of at most `most` as possible, of nearly equal lengths."""
    pieces = -(-len(items) // most)
    bounds = [round(index * len(items) / pieces) for index in range(pieces + 1)] if pieces else []
    return [items[low:high] for low, high in pairwise(bounds)]
