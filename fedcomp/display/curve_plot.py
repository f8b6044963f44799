"""The picture of one run: its main metric against the bits sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.display import figure, units
from fedcomp.display.metric import main_metric
from fedcomp.records.metrics_file import Metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE_WIDTH = 55
"""Characters of a heading's line."""
CURVES = {"bits/total": "total (uplink + downlink)", "bits/uplink": "uplink alone"}
"""{bits that the values are drawn against: their name}."""


def plot_curve(lines: Sequence[Metrics], path: Path, title: str, num_params: int) -> None:
    """Plot the run's main metric against all bits sent, and against the bits of the uplink.

    Before round 0 no bits are sent, which a logarithmic axis cannot show: its value is a dotted horizontal line.

    Args:
        lines: the run's evaluations, in order, which have a main metric.
        path: of the picture to write (.png or .pdf).
        title: first line of the heading.
        num_params: parameters of the model, for the heading.

    Raises:
        ValueError: the picture cannot be written.
    """
    metric = main_metric(lines)
    assert metric is not None
    quality, scale = metric.key, metric.scale
    lines = [line for line in lines if quality in line]

    picture = figure.new_figure(5.2, 3.4)
    axes = picture.add_subplot()
    initial = [scale * line[quality] for line in lines if not line.get("bits/total")]
    if initial and math.isfinite(initial[0]):
        _draw_first(axes, initial[0])
    drawn = [
        _draw(axes, number, name, [(line[key], scale * line[quality]) for line in lines if line.get(key, 0) > 0])
        for number, (key, name) in enumerate(CURVES.items())
    ]
    figure.style(axes, "bits sent so far, all clients together", metric.title)
    if any(drawn):
        figure.log_axis(axes, "x", units.bits)
        axes.legend(
            fontsize=8, frameon=False, labelcolor=figure.INK, ncols=2, loc="lower left", bbox_to_anchor=(-0.02, 0.99)
        )
    else:
        axes.plot([line["round"] for line in lines], [scale * line[quality] for line in lines], color=figure.COLOURS[0])
        axes.set_xlabel("round (no bits were sent)")
        figure.integer_axis(axes, "x")
    if scale == 1 and _dynamic_range(lines, quality) > 50:
        axes.set_yscale("log")
    heading = figure.wrapped(title, TITLE_WIDTH)
    axes.set_title(f"{heading}\n\n", fontsize=10, color=figure.INK, loc="left", fontweight="bold")
    axes.annotate(
        _heading(lines[-1], num_params),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 20),
        textcoords="offset points",
        fontsize=8,
        color="#666666",
    )
    figure.save(picture, path)


def _draw_first(axes: Axes, value: float) -> None:
    """The value before the first round."""
    axes.axhline(value, color="#999999", linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    axes.annotate(
        "before training",
        (1, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        fontsize=7,
        color="#777777",
    )


def _draw(axes: Axes, number: int, name: str, points: Sequence[tuple[float, float]]) -> bool:
    """Points (bits, value) of the curve of this number, and a marker at the last; False if there are none."""
    if not points:
        return False
    sent, value = zip(*points)
    colour, marker = figure.COLOURS[number], figure.MARKERS[number]
    axes.plot(
        sent,
        value,
        color=colour,
        linestyle=figure.DASHES[number],
        linewidth=1.6,
        marker=marker,
        markersize=3 if len(points) <= 40 else 0,
        label=f"{name}: {units.bits(sent[-1])}",
    )
    axes.plot(sent[-1], value[-1], color=colour, marker=marker, markersize=4.5)
    return True


def _heading(last: Metrics, num_params: int) -> str:
    """The line under the title: parameters, rounds, bits per parameter."""
    parts = [f"{num_params:,} parameters", f"{last['round']} rounds"]
    if "bpp/uplink" in last and "bpp/downlink" in last:
        up, down = (units.significant(last[f"bpp/{way}"]) for way in ("uplink", "downlink"))
        per_receiver = last.get("bpp/downlink_per_receiver", last["bpp/downlink"])
        if per_receiver != last["bpp/downlink"]:
            down += f" ({units.significant(per_receiver)} per receiver)"
        parts.append(f"{up} ↑ {down} ↓ bits per parameter")
    return "  ·  ".join(parts)


def _dynamic_range(lines: Sequence[Metrics], key: str) -> float:
    """Largest over smallest finite value; 0 if there is none, or if the smallest is not positive."""
    values = [line[key] for line in lines if math.isfinite(line[key])]
    return max(values) / min(values) if values and min(values) > 0 else 0.0
