"""A saved view of a W&B project, and a report there: accuracy against bits, one line a method, seeds as a band.

Both need the library `wandb-workspaces`, a key and the server.
"""

import os
from typing import Any

from fedcomp.core.first_line import first_line

AXES = (
    ("total bits", "bits/total", "test/accuracy"),
    ("uplink bits", "bits/uplink", "vs_uplink/accuracy"),
    ("downlink bits", "bits/downlink", "vs_downlink/accuracy"),
)
"""(title, x, y) of the panels; W&B draws a metric against one x axis, so the tracker logs it three times."""
COLUMNS = ("max_accuracy", "bits/total", "bits/uplink", "bits/downlink", "bpp/total")
"""Columns of the table of runs, from the summaries."""
NAME = "accuracy against bits"


def publish(entity: str, project: str, title: str, table: str) -> list[str]:
    """Save the view and the report in the project; returns their addresses.

    Args:
        entity: user or team. title: of the report. table: its table, in Markdown.
    Raises:
        ValueError: the library is missing, there is no key, or W&B refuses; one line.
    """
    if not os.environ.get("WANDB_API_KEY"):
        raise ValueError("WANDB_API_KEY is not set")
    if not entity:
        raise ValueError("WANDB_ENTITY is not set, and the runs were logged without one")
    built = [workspace(entity, project), report(entity, project, title, table)]
    try:
        return [str(one.save().url) for one in built]
    except Exception as error:  # a foreign library and its server: whatever fails, the report on disk is there
        raise ValueError(first_line(error)) from error


def workspace(entity: str, project: str) -> Any:
    """The view: a section with the panels, the runs grouped by method and config, and the table's columns."""
    spaces, _ = _library()
    settings = spaces.RunsetSettings(
        groupby=[spaces.Config("method"), spaces.Config("config_hash")],
        pinned_columns=[f"summary:{name}" for name in COLUMNS],
    )
    section = spaces.Section(NAME, panels=panels(), is_open=True)
    return spaces.Workspace(entity=entity, project=project, name=NAME, sections=[section], runset_settings=settings)


def report(entity: str, project: str, title: str, table: str) -> Any:
    """The report: the table, and the same panels."""
    _, reports = _library()
    runs = reports.Runset(entity=entity, project=project, groupby=["config.method", "config.config_hash"])
    grid = reports.PanelGrid(runsets=[runs], panels=panels())
    blocks = [reports.MarkdownBlock(table), reports.H2(NAME), grid]
    return reports.Report(project=project, entity=entity, title=title, blocks=blocks)


def panels() -> list[Any]:
    """Mean over the seeds of a method and a band of their standard deviation, over logarithmic bits."""
    _, reports = _library()
    return [
        reports.LinePlot(
            title=f"test accuracy against {title}",
            x=reports.Metric(x),
            y=[reports.Metric(y)],
            log_x=True,
            aggregate=True,
            groupby_aggfunc="mean",
            groupby_rangefunc="stddev",
            layout=reports.Layout(x=8 * place, y=0, w=8, h=8),
        )
        for place, (title, x, y) in enumerate(AXES)
    ]


def _library() -> tuple[Any, Any]:
    """The library's workspaces and reports. Raises ValueError: it is not installed."""
    try:
        import wandb_workspaces.reports.v2 as reports
        import wandb_workspaces.workspaces as spaces
    except ImportError as error:
        raise ValueError("wandb-workspaces is not installed: pip install 'fedcomp[wandb]'") from error
    return spaces, reports
