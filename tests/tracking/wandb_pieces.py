"""Reads back what W&B wrote beside a run: its pieces (one file a start), oldest first."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wandb
from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

from fedcomp.tracking.wandb_log import ends, records


@dataclass
class Piece:
    """One start of a run as its `.wandb` file has it; `axes` are metric -> x axis."""

    path: Path
    begun: float = math.inf
    run_id: str = ""
    group: str = ""
    name: str = ""
    project: str = ""
    job_type: str = ""
    notes: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    axes: dict[str, str] = field(default_factory=dict)
    aggregates: dict[str, set[str]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    preempted: bool = False
    exit_code: int | None = None

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The history without W&B's own columns and without rows that hold pictures alone."""
        rows = [{name: value for name, value in row.items() if name[0] != "_"} for row in self.history]
        return [row for row in rows if "round" in row]

    @property
    def pictures(self) -> set[str]:
        """Names of the pictures in the history whose file is really there."""
        found = [(name[: -len(".path")], path) for row in self.history for name, path in row.items() if ".path" in name]
        return {name for name, path in found if (self.path.parent / "files" / path).stat().st_size > 1000}


def read_piece(path: Path) -> Piece:
    """What one `.wandb` file says."""
    piece = Piece(path)
    for data in records(path):
        record = Record.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            piece.run_id, piece.group, piece.name, piece.tags = run.run_id, run.run_group, run.display_name, [*run.tags]
            piece.begun = run.start_time.seconds + 1e-9 * run.start_time.nanos
            piece.project, piece.job_type, piece.notes = run.project, run.job_type, run.notes
            piece.config = {item.key: json.loads(item.value_json) for item in run.config.update}
        elif kind == "history":
            piece.history.append({_key(item): json.loads(item.value_json) for item in record.history.item})
        elif kind == "summary":
            piece.summary |= {_key(item): json.loads(item.value_json) for item in record.summary.update}
        elif kind == "metric":
            metric = record.metric
            piece.axes[metric.name] = metric.step_metric
            piece.aggregates[metric.name] = {option.name for option, _ in metric.summary.ListFields()}
        elif kind == "preempting":
            piece.preempted = True
        elif kind == "exit":
            piece.exit_code = record.exit.exit_code
    return piece


def pieces(root: Path) -> list[Piece]:
    """Every piece under a folder, complete and in the order in which they were begun.

    W&B's own process still writes to a file, and holds the run's id, when `finish` has returned: it is ended first, as
    it is at the end of a command.
    """
    wandb.teardown()
    files = [path for path in root.rglob("*.wandb") if not path.parent.is_symlink()]
    return sorted((read_piece(path) for path in files), key=lambda piece: piece.begun)


def tear(piece: Piece, last: int) -> None:
    """Leave of the file what it holds up to the line of round `last`, and the beginning of the record after it."""
    for end, data in ends(piece.path):
        values = {_key(item): item.value_json for item in Record.FromString(data).history.item}
        if values.get("round") == str(last):
            os.truncate(piece.path, end + 10)
            return
    raise AssertionError(f"{piece.path} has no line of round {last}")


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)
