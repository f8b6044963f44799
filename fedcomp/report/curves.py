"""Quality against bits for many groups: mean over seeds as a line, sample deviation as a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedcomp.report.group import Group
from fedcomp.tracking import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = (("bits/total", "total bits (uplink + downlink)"), ("bits/uplink", "uplink bits"))


@dataclass(frozen=True)
class Curve:
    """One group over its evaluations.

    Attributes:
        bits: [evaluations] mean over seeds of the bits sent by then.
        mean: [evaluations] mean over seeds of the quality there.
        deviation: [evaluations] sample deviation over seeds; 0 for one seed.
    """

    bits: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


def curve(group: Group, quality: str, bits: str) -> Curve:
    """The group's mean line, at the rounds that every seed evaluated and after which bits were sent.

    Args:
        quality: key of the y axis, `test/accuracy` or `test/loss`.
        bits: key of the x axis, `bits/total` or `bits/uplink`.
    """
    runs = [{line["round"]: line for line in run.lines if quality in line and bits in line} for run in group.runs]
    rounds = sorted(set(runs[0]).intersection(*runs[1:]))
    values_RE = np.array([[run[round][quality] for round in rounds] for run in runs], dtype=float)
    sent_E = np.array([[run[round][bits] for round in rounds] for run in runs], dtype=float).mean(axis=0)
    deviation_E = values_RE.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(rounds))
    shown = sent_E > 0
    return Curve(sent_E[shown], values_RE.mean(axis=0)[shown], deviation_E[shown])


def plot_groups(groups: Sequence[Group], paths: Sequence[Path], title: str = "") -> None:
    """Test accuracy (test loss where no run has one) against total bits, and beside it against uplink bits.

    Args:
        groups: at least one.
        paths: of the same picture in each format wanted (.png, .pdf).
        title: heading.

    Raises:
        ValueError: no group, or a picture cannot be written.
    """
    if not groups:
        raise ValueError("no finished run to draw; wait for one, or look at a run's own curve.png")
    accuracy = any("test/accuracy" in line for group in groups for run in group.runs for line in run.lines)
    quality, scale, ylabel = ("test/accuracy", 100, "test accuracy (%)") if accuracy else ("test/loss", 1, "test loss")

    legend_lines = -(-len(groups) // 4)
    picture = figure.new_figure(7.6, 3.2 + 0.17 * legend_lines)
    panels = picture.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.08})
    for axes, (bits, xlabel) in zip(panels, PANELS):
        for index, group in enumerate(groups):
            _draw(axes, curve(group, quality, bits), scale, index, group.label)
        figure.style(axes, xlabel, ylabel if axes is panels[0] else "")
        if axes.lines:
            figure.bits_axis(axes)
    handles, names = panels[0].get_legend_handles_labels()
    if handles:
        picture.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=min(4, len(groups)),
            fontsize=8,
            frameon=False,
            labelcolor=figure.INK,
            handlelength=2.8,
        )
    if title:
        picture.suptitle(title, fontsize=10, color=figure.INK, fontweight="bold")
    for path in paths:
        figure.save(picture, path)


def _draw(axes: Axes, line: Curve, scale: float, index: int, label: str) -> None:
    """One group's line, band and last point, in a colour and dash of its own."""
    if len(line.bits) == 0:
        return
    colour = figure.COLOURS[index % len(figure.COLOURS)]
    dashes = figure.DASHES[index // len(figure.COLOURS) % len(figure.DASHES)]
    low, high = scale * (line.mean - line.deviation), scale * (line.mean + line.deviation)
    axes.fill_between(line.bits, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(line.bits, scale * line.mean, color=colour, linestyle=dashes, linewidth=1.5, label=label)
    axes.plot(line.bits[-1], scale * line.mean[-1], color=colour, marker="o", markersize=4)
