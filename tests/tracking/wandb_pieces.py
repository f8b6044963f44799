"""Reads back what W&B wrote beside a run, its pieces (one file a session), with `wandb leet inspect`."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedcomp.records.metrics_file import read_lines
from tests.forked import Forked


@dataclass
class Piece:
    """One start of a run as its `.wandb` file has it; `axes` are metric -> x axis."""

    path: Path
    begun: str = ""
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
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
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
    from wandb.cli.cli import cli

    piece = Piece(path)
    with tempfile.TemporaryDirectory() as place:
        command = ["wandb", "leet", "inspect", "--json", str(path)]
        process = Forked(lambda: cli(command[1:]), command, folder=path.parent, shown=Path(place) / "shown")
        assert process.wait() == 0, process.shown()
        lines = [line for line in process.shown().splitlines() if line.startswith("{")]
    for line in lines:
        kind = json.loads(line)["type"]
        content = json.loads(line).get(kind, {})
        if kind == "run":
            piece.run_id, piece.group, piece.name = content["run_id"], content["run_group"], content["display_name"]
            piece.tags, piece.begun, piece.project = content["tags"], content["start_time"], content["project"]
            piece.job_type, piece.notes = content["job_type"], content.get("notes", "")
            piece.config = content["config"]["update"]
        elif kind == "history":
            piece.history.append(content["item"])
        elif kind == "summary":
            piece.summary |= content["update"]
        elif kind == "metric":
            piece.axes[content["name"]] = content.get("step_metric", "")
            piece.aggregates[content["name"]] = set(content.get("summary", {}))
        elif kind == "artifact":
            piece.artifacts[content["type"]] = content
        elif kind == "preempting":
            piece.preempted = True
        elif kind == "exit":
            piece.exit_code = content.get("exit_code", 0)
    return piece


def lines_below(root: Path) -> list[dict[str, Any]]:
    """The record of the only run below a folder, among whose files W&B's own lie."""
    (path,) = root.rglob("metrics.jsonl")
    return read_lines(path)


def pieces(root: Path) -> list[Piece]:
    """Every piece under a folder, complete and in the order in which they were begun.

    W&B's own process still writes to a file, and holds the run's id, when `finish` has returned: it is ended first, as
    it is at the end of a command.
    """
    import wandb  # a second, of which most processes that collect tests have no use

    wandb.teardown()
    files = [path for path in root.rglob("*.wandb") if not path.parent.is_symlink()]
    return sorted((read_piece(path) for path in files), key=lambda piece: piece.begun)


@pytest.fixture
def without_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing about W&B."""
    for name in ("MODE", "API_KEY", "PROJECT", "ENTITY", "BASE_URL", "DIR", "RUN_ID", "RESUME", "NAME", "SWEEP_ID"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
