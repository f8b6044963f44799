"""The look that all pictures share: colours, axes, units on ticks, and saving in one step.

Figures are made without pyplot: no global state, no display needed, nothing to close.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.tracking import units
from fedcomp.tracking.atomic import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours for every kind of colour vision, without the yellow that fades on white."""
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
"""Tell lines apart once the colours are used up, and in a black and white print."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK = "#333333"
GRID = "#E4E4E4"
DPI = 200


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of `width` x `height` inches whose parts make room for each other."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")


def style(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Labels with units, a light grid behind the data, no box."""
    axes.set_xlabel(xlabel, fontsize=9, color=INK)
    axes.set_ylabel(ylabel, fontsize=9, color=INK)
    axes.tick_params(which="both", labelsize=8, colors=INK, length=3, width=0.6)
    axes.tick_params(which="minor", length=1.5)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(color=INK, linewidth=0.6)


def bits_axis(axes: Axes) -> None:
    """A logarithmic x axis whose ticks read 10 kbit, 1 Mbit; call after the data is drawn."""
    log_axis(axes, "x", units.bits)


def log_axis(axes: Axes, which: str, text: Callable[[float], str] | None = None) -> None:
    """A logarithmic axis, at least three of its ticks with numbers where it is short; call after the data is drawn.

    Args:
        which: x or y.
        text: a tick's number with its unit; None for plain numbers, 0.03, 20, 10⁵.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    per_decade: tuple[float, ...] = (
        (1.0, 2.0, 5.0) if high < (100 if text is None else 30) * low else (1.0,)
    )  # units take room
    if high < 8 * low and text is None:
        per_decade = tuple(map(float, range(1, 10)))
    axis.set_major_locator(LogLocator(subs=per_decade, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda count, _: _tick(count, text)))
    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0), numticks=30))
    axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, path: Path) -> None:
    """Write the figure in one step, as its ending says (.png, .pdf); the same figure gives the same bytes.

    Raises:
        ValueError: the file cannot be written.
    """
    from matplotlib import rc_context

    metadata = {".pdf": {"CreationDate": None}, ".png": {"Software": None}}.get(path.suffix)
    with atomic_path(path) as temporary, rc_context({"pdf.fonttype": 42}):  # 42: fonts that conferences accept
        figure.savefig(temporary, format=path.suffix.removeprefix("."), metadata=metadata)


def _tick(count: float, text: Callable[[float], str] | None) -> str:
    """A tick's number without needless digits: 1 kbit, 20 kbit; 0.03, 20, 10⁵."""
    if text is not None:
        number, _, unit = text(count).partition(" ")
        return f"{float(number):g} {unit}"
    return f"{count:g}" if 1e-3 <= abs(count) < 1e4 else units.power(count)
