"""A figure of runs, for a paper or a notebook, that matplotlib can change further."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedcomp.api.runs import Runs, folders_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(
    runs: Runs,
    x: str = "uplink",
    y: str | Sequence[str] = "test/accuracy",
    size: str | tuple[float, float] = (3.3, 2.2),
    **options: Any,
) -> Figure:
    """Means over seeds, with a band of a standard deviation, a line a method.

    Args:
        runs: runs, or folders that hold some; also a single one. Only finished ones are shown.
        x: uplink, downlink, total, rounds, seconds (then along the run), a metric, or an option of the config.
        y: a metric; of several each has axes of its own.
        size: width and height in inches.
        options: others of an entry of `figures:`, such as ylim=(0.8, 0.95), order=["ours", "sign"],
            rename={"ours": "FedX"}, legend="lower right", log_x=False, kind="runs".
    Returns:
        A matplotlib figure: `figure.axes[0].set_title(...)`, `figure.savefig("curves.pdf")`.
    Raises:
        ValueError: no run is finished, or none has these metrics, or an option cannot be.
    """
    from fedcomp.records.reader import read_runs
    from fedcomp.reporting.group import group, in_command_order
    from fedcomp.reporting.pictures.draw import sheet
    from fedcomp.reporting.pictures.figures import asked_picture

    folders = folders_of(runs)
    groups = in_command_order(group(read_runs(folders)), folders)
    if not groups:
        raise ValueError("no run is finished")
    return sheet(asked_picture({"name": "figure", "x": x, "y": y, "size": size, **options}, groups))
