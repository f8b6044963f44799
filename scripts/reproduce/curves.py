"""Curves of quality against bits and rounds, from the records: runs that are not finished have theirs too."""

from pathlib import Path

from fedcomp.display.metric import metric
from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.group import RunGroup
from fedcomp.reporting.pictures.curves import curves
from fedcomp.reporting.pictures.draw import draw
from scripts.reproduce.records import Records, Run


def draw_curves(records: Records, quality: str, file: Path) -> None:
    """Draw a method's mean over its seeds, at the rounds that all of them have done; nothing where nothing was run."""
    groups = [
        RunGroup(label, tuple(_recorded(run) for run in records.where(label=label)))
        for label in records.values("label")
    ]
    for picture in curves(groups, [metric(quality)]):
        draw(picture, [file])


def _recorded(run: Run) -> RecordedRun:
    lines = [dict(line) for line in run.lines]
    return RecordedRun(Path(run.about["run"]), {}, int(run.about["seed"]), "finished", lines=lines)
