"""The picture of a partition: how many samples of each class every client holds, one row per client.

Shape legend: N clients, C classes.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedcomp.display import figure
from fedcomp.records.atomic_write import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_NUMBERED = 25
"""With more clients or classes than this, cells have no numbers and not every client has a tick."""

MOST_KEPT = 32
_KEPT: dict[Hashable, bytes] = {}
"""The last pictures of this process by what they show: runs of a grid share partitions, and drawing takes 0.3 s."""


def plot_partition(
    counts_NC: np.ndarray, path: Path, class_names: Sequence[str] = (), title: str = "", below: str = ""
) -> None:
    """Plot the samples of each class that a client holds, and a bar of all its samples; for C = 1 only the bars.

    Darker cells hold more samples (the shade follows the square root, so that few samples are visible); white: none.

    Args:
        counts_NC: [N, C] samples of client n with class c, integers >= 0.
        path: of the picture to write (.png or .pdf).
        class_names: C names, or none: then classes are numbered from 0.
        title: heading.
        below: a line under the plot, in a small font.

    Raises:
        ValueError: the picture cannot be written.
    """
    counts = hashlib.blake2b(counts_NC.tobytes()).digest()  # not themselves: of many clients they are large
    shown = (counts, counts_NC.shape, tuple(class_names), title, below, path.suffix)
    if shown in _KEPT:
        write_atomically(path, _KEPT[shown])
        return
    figure.save(partition_figure(counts_NC, class_names, title, below), path)
    if len(_KEPT) == MOST_KEPT:
        del _KEPT[next(iter(_KEPT))]
    _KEPT[shown] = path.read_bytes()


def partition_figure(counts_NC: np.ndarray, class_names: Sequence[str], title: str, below: str) -> Figure:
    """The picture that `plot_partition` writes, from the same arguments."""
    num_clients, num_classes = counts_NC.shape
    names = list(class_names) or [str(label) for label in range(num_classes)]

    small = num_clients <= MAX_NUMBERED and num_classes <= MAX_NUMBERED
    height = 1.3 + (0.3 * num_clients if small else min(6.5, max(2.5, 0.055 * num_clients)))
    if num_classes == 1:
        picture = figure.new_figure(4.6, height)
        bars = picture.add_subplot()
        _sizes(bars, counts_NC.sum(axis=1))
        bars.set_ylabel("client", fontsize=9, color=figure.INK)
        _client_ticks(bars, num_clients)
        axes = bars
    else:
        width = max(2.2, 0.36 * num_classes) if small else min(6.0, max(2.6, 0.08 * num_classes))
        picture = figure.new_figure(width + 2.4, height)
        axes, bars = picture.subplots(1, 2, sharey=True, width_ratios=[width, 1.3])
        _cells(axes, counts_NC)
        _sizes(bars, counts_NC.sum(axis=1))
        figure.style(axes, "class", "client")
        _class_ticks(axes, names)
        _client_ticks(axes, num_clients)
        axes.grid(False)
        bars.tick_params(axis="y", left=False, labelleft=False)
    axes.set_ylim(num_clients - 0.5, -0.5)
    picture.suptitle(figure.drawable(title), fontsize=10, color=figure.INK, fontweight="bold")
    if below:
        chars = max(30, round(13 * picture.get_figwidth()))
        picture.supxlabel("\n".join(textwrap.wrap(below, chars)), fontsize=7, color="#666666")
    return picture


def _cells(axes: Axes, counts_NC: np.ndarray) -> None:
    """A shaded cell for each client and class, with its number if there are few cells, else with a colour bar."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, PowerNorm

    largest = max(1, counts_NC.max())
    shades = ListedColormap(colormaps["Blues"](np.linspace(0.1, 1.0, 256)))
    image = axes.imshow(
        np.ma.masked_equal(counts_NC, 0),
        norm=PowerNorm(0.5, 0, largest),
        cmap=shades,
        aspect="auto",
        interpolation="nearest",
    )
    if max(counts_NC.shape) <= MAX_NUMBERED:
        for client, label in np.argwhere(counts_NC):
            number = int(counts_NC[client, label])
            colour = "white" if number > 0.3 * largest else figure.INK
            text = axes.text(label, client, _short(number), fontsize=7, color=colour, ha="center", va="center_baseline")
            text.set_in_layout(False)  # it is within the axes, and measuring it takes as long as drawing it
    else:
        bar = axes.figure.colorbar(image, ax=axes, location="top", shrink=0.7, aspect=40, pad=0.02)
        bar.set_label("samples (white: none)", fontsize=8, color=figure.INK)
        bar.ax.tick_params(labelsize=7, colors=figure.INK, length=2)
        bar.outline.set_visible(False)


def _sizes(bars: Axes, samples_N: np.ndarray) -> None:
    """One horizontal bar per client, with its number if there are few clients, else with an axis."""
    clients = np.arange(len(samples_N))
    few = len(samples_N) <= MAX_NUMBERED
    if few:
        bars.barh(clients, samples_N, height=0.7, color="#A9B4C0", linewidth=0)
    else:  # one shape: a bar of its own takes half a millisecond, also where there are 20,000
        edges = np.stack((clients - 0.5, clients + 0.5), axis=1).ravel()
        bars.fill_betweenx(edges, np.repeat(samples_N, 2), color="#A9B4C0", linewidth=0)
    figure.style(bars, "samples", "")
    bars.grid(False)
    bars.set_xlim(0, max(1, samples_N.max()) * (1.5 if few else 1.05))
    if few:
        bars.set_xticks([])
        bars.set_xlabel("samples", loc="left")
        bars.spines["bottom"].set_visible(False)
        for client, number in zip(clients, samples_N):
            bars.annotate(
                f"{number:,}",
                (number, client),
                xytext=(2, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
                color=figure.INK,
                in_layout=False,
            )
    else:
        bars.locator_params(axis="x", nbins=3)


def _short(number: int) -> str:
    """A count in at most four characters: 987, 1.2k, 12k."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 9950 else f"{number / 1000:.0f}k"


def _class_ticks(axes: Axes, names: list[str]) -> None:
    """One tick per class, with long names slanted; a selection of numbers if there are many classes."""
    if len(names) <= MAX_NUMBERED:
        long = max(map(len, names)) > 3
        axes.set_xticks(range(len(names)), [figure.drawable(name) for name in names])
        if long:
            axes.tick_params(axis="x", rotation=45)
            for tick in axes.get_xticklabels():
                tick.set(ha="right", rotation_mode="anchor")
    else:
        axes.locator_params(axis="x", integer=True, nbins=10)


def _client_ticks(axes: Axes, num_clients: int) -> None:
    """One tick per client; a selection if there are many clients."""
    if num_clients <= MAX_NUMBERED:
        axes.set_yticks(range(num_clients))
    else:
        axes.locator_params(axis="y", integer=True, nbins=10)
