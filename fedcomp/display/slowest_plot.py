"""The picture of a run with a network: whom the server waited for, and how often."""

from pathlib import Path

import numpy as np

from fedcomp.display import figure

MOST = 30
"""Clients that are shown; the others are one bar."""

FEW = 5
"""Bars that the axis has room for at least, so that a single one is not as wide as the picture."""


def plot_slowest(counts: np.ndarray, path: Path, title: str) -> None:
    """Bars of how often each client was the last one of an exchange, the most frequent first.

    Args:
        counts: [N] exchanges. path: of the picture to write. title: its heading.
    """
    order = np.argsort(-counts, kind="stable")
    shown = order[:MOST][counts[order[:MOST]] > 0]
    heights, names = counts[shown].tolist(), [str(client) for client in shown]
    if left := int(counts.sum() - sum(heights)):
        heights, names = [*heights, left], [*names, "others"]
    picture = figure.new_figure(5.2, 2.8)
    axes = picture.add_subplot()
    axes.bar(range(len(heights)), heights, color=figure.COLOURS[0], width=0.8)
    crowded = len(names) > 12
    axes.set_xlim(-1, max(len(names), FEW))
    axes.set_xticks(range(len(names)), names, fontsize=6 if crowded else 8, rotation=90 if crowded else 0)
    figure.style(axes, "client", "exchanges that waited for it")
    never = int((counts == 0).sum())
    beside = f"{len(counts)} clients, {never} of them never the slowest" if never else f"{len(counts)} clients"
    axes.set_title(f"{title}\n{beside}", fontsize=9, color=figure.INK, loc="left")
    figure.save(picture, path)
