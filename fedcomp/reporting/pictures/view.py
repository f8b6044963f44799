"""What part of a panel is shown, and which evaluations carry a line's marker."""

import math
from dataclasses import replace

import numpy as np

from fedcomp.reporting.pictures.picture import Axis, Panel

SHOWN, CUT = 0.1, 0.4
"""Of the range of all values: what is shown beyond the ends of the lines at least, and what is cut off at least."""
MARGIN = 0.05


def view(panel: Panel) -> tuple[Axis, Axis, str]:
    """The axes as they are drawn, and what they leave out, in words; "": nothing.

    They are around the ends of the lines, if these lie close together and far from where the lines begin.

    The first rounds of methods that end at 88 to 94 % would take nine tenths of the axis. Logarithmic axes and those
    whose ends are given stay as they are.
    """
    axis, whole = panel.y, (panel.x, panel.y, "")
    lines = [(one.x[np.isfinite(one.y)], one.y[np.isfinite(one.y)]) for one in panel.series if one.mark == "line"]
    lines = [(x, y) for x, y in lines if len(y)]
    if axis.log or axis.low is not None or axis.high is not None or len(lines) < max(2, len(panel.series)):
        return whole
    ends = [float(y[-1]) for _, y in lines]
    every = np.concatenate([*(y for _, y in lines), [value for _, value in panel.lines]])
    low, high = float(every.min()), float(every.max())
    room = max(2 * (max(ends) - min(ends)), SHOWN * (high - low))
    below, above = min(ends) - room, max(ends) + room
    bands = [one.y[-1] + sign * np.nan_to_num(one.deviation[-1]) for one in panel.series for sign in (-1, 1)]
    percent = " %" if axis.unit == "percent" else ""
    if below - low > CUT * (high - low):
        bottom, top = _round(below, high - below), max(high, *bands)
        shown = replace(axis, low=bottom, high=top + MARGIN * (top - bottom))
        cut = f"below {bottom:g}{percent} not shown"
    elif high - above > CUT * (high - low):
        bottom, top = min(low, *bands), _round(above, above - low)
        shown = replace(axis, low=bottom - MARGIN * (top - bottom), high=top)
        cut = f"above {top:g}{percent} not shown"
    else:
        return whole
    inside = [x[(y >= shown.low) & (y <= shown.high)] for x, y in lines]
    first = min((float(x[0]) for x in inside if len(x)), default=None)
    start = panel.x.low if panel.x.low is not None or first is None else first * (0.8 if panel.x.log else 1)
    last = max(float(x[-1]) for x, _ in lines)
    end = last / 0.8 if panel.x.log and panel.x.high is None else panel.x.high
    return replace(panel.x, low=start, high=end), shown, cut


def _round(value: float, span: float) -> float:
    """The value to a twentieth of the span or less, a number that is easy to read."""
    step = 10.0 ** math.floor(math.log10(span / 20))
    return float(f"{round(value / (5 * step)) * 5 * step:.12g}")


def marked_places(places: np.ndarray, log: bool, number: int, num_lines: int) -> list[int]:
    """The evaluations of a line that carry its marker: three, at other places than those of the other lines.

    Args:
        places: [E] on the x axis. log: whether that is logarithmic. number: of the line among `num_lines`.
    """
    if len(places) < 2:
        return list(range(len(places)))
    scaled = np.log(places) if log and places[0] > 0 else places
    share = (np.arange(3) + (number + 0.5) / num_lines) / 3
    wanted = scaled[0] + share * (scaled[-1] - scaled[0])
    return sorted({int(np.abs(scaled - one).argmin()) for one in wanted})
