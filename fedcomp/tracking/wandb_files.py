"""Runs as W&B's own files have them: `offline-run-*/run-<id>.wandb`, and `run-*` of runs that were online.

The files are read with `wandb leet inspect`, all in one process of its own, which imports W&B once. The pieces of a run
that was resumed are joined by round.
"""

import json
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedcomp.core.choices import FOLDERS, choices
from fedcomp.core.folders import part_name
from fedcomp.core.validate import is_number
from fedcomp.records.metrics_file import Line
from fedcomp.records.reader import RecordedRun, without_rooms
from fedcomp.tracking.wandb import PICTURES

NOT_CONFIG = frozenset(
    {
        "_wandb",
        "config_hash",
        "method",
        "num_params",
        "expected_participants",
        "num_train_samples",
        "num_test_samples",
        "label_entropy",
    }
)
"""What a W&B run's config has beside the config of the run."""


@dataclass
class Piece:
    """One file.

    Attributes:
        path: of the file. begun: when, as text that sorts. run_id, project, entity: of the run at W&B.
        config: of the run. rows: the evaluations. summary: what was logged last. error: one line, if it cannot be read.
    """

    path: Path
    begun: str = ""
    run_id: str = ""
    project: str = ""
    entity: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[Line] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


def read_pieces(roots: Iterable[str | Path]) -> list[Piece]:
    """Every file of W&B in or below the folders, in the order in which they were begun.

    Raises ValueError: there is no such folder, no file, or W&B is not installed.
    """
    if find_spec("wandb") is None:
        raise ValueError("W&B's files are read by W&B: pip install wandb")
    folders = [Path(root) for root in roots]
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder; give one that holds runs with tracker=wandb (outputs/)")
    found = {
        path.resolve(): path
        for folder in folders
        for path in sorted(folder.rglob("run-*.wandb"))
        if not path.parent.is_symlink()
    }
    if not found:
        raise ValueError(f"no run of W&B found under {', '.join(map(str, folders))}: they are made with tracker=wandb")
    pieces = list(_inspected(list(found.values())))
    return sorted(pieces, key=lambda piece: (piece.begun, str(piece.path)))


def recorded_runs(pieces: Iterable[Piece]) -> list[RecordedRun]:
    """The runs of these pieces; of a run that was shown twice (agents of a sweep), the reports leave one out.

    A file that cannot be read is a run that is `unreadable`, and one without a run's beginning a run by itself.
    """
    runs: dict[str, list[Piece]] = {}
    for piece in pieces:
        runs.setdefault(piece.run_id or str(piece.path), []).append(piece)
    return [_joined(own) for own in runs.values()]


def _joined(pieces: list[Piece]) -> RecordedRun:
    """One run; of a round that was logged twice the later line counts."""
    last = pieces[-1]
    if last.error is not None:
        return RecordedRun(last.path.parent, {}, None, "unreadable", last.error)
    rows = {int(row["round"]): row for piece in pieces for row in piece.rows}
    config = {key: _as_written(key, value) for key, value in last.config.items() if key not in NOT_CONFIG}
    config = without_rooms(config)
    state = str(last.summary.get("state", "running"))
    return RecordedRun(last.path.parent, config, config.get("seed"), state, None, [rows[done] for done in sorted(rows)])


def _as_written(group: str, part: Any) -> Any:
    """A part's options in the order of its YAML file, which is that of a report's labels: W&B sorts them by name."""
    if not isinstance(part, dict) or "_target_" not in part:
        return part
    order = list(choices(FOLDERS.get(group, group)).get(part_name(part["_target_"]), part))
    return {key: part[key] for key in sorted(part, key=lambda key: order.index(key) if key in order else len(order))}


def _piece(path: Path, lines: Iterable[Mapping[str, Any]]) -> Piece:
    piece = Piece(path)
    for line in lines:
        kind = line.get("type", "")
        content = line.get(kind) or {}
        if kind == "run":
            piece.run_id, piece.begun = content.get("run_id", ""), content.get("start_time", "")
            piece.project, piece.entity = content.get("project", ""), content.get("entity", "")
            piece.config = (content.get("config") or {}).get("update") or {}
        elif kind == "history" and "round" in (content.get("item") or {}):
            piece.rows.append(dict(_numbers(content["item"])))
        elif kind == "summary":
            piece.summary |= content.get("update") or {}
    return piece


_INSPECT = """
import json, os, sys, tempfile, traceback
from wandb.cli.cli import cli
for path in json.load(sys.stdin):
    with tempfile.TemporaryFile("w+") as said:
        os.dup2(said.fileno(), 2)
        try:
            cli(["leet", "inspect", "--json", path])
        except SystemExit as end:
            status = end.code
        except Exception:
            status = 1
            traceback.print_exc()
        said.seek(0)
        print(json.dumps({"ended": status, "said": said.read()}), flush=True)
"""


def _inspected(paths: Sequence[Path]) -> Iterator[Piece]:
    """What W&B shows of each file, whose end may be torn. Raises ValueError: W&B ended before it had read all."""
    given = json.dumps([str(path.resolve()) for path in paths])
    command = [sys.executable, "-P", "-c", _INSPECT]  # no module of the runs' folder is imported
    shown = subprocess.run(command, input=given, capture_output=True, text=True, cwd=paths[0].parent)
    left, lines = list(reversed(paths)), list[dict[str, Any]]()
    for line in shown.stdout.splitlines():
        if not line.startswith("{"):
            continue
        found = json.loads(line)
        if "ended" not in found:
            lines.append(found)
            continue
        piece = _piece(left.pop(), lines)
        if found["ended"] and not lines:
            piece.error = f"W&B cannot read it: {_last_line(found['said'])}"
        yield piece
        lines = []
    if left:
        raise ValueError(f"W&B cannot read {left[-1]}: {_last_line(shown.stderr)}")


def _last_line(said: str) -> str:
    return (said.strip() or "no answer").splitlines()[-1]


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float | int]]:
    """The columns that the run itself recorded: without W&B's own, pictures, and metrics against other axes."""
    for name, value in row.items():
        if name.startswith(("_", "vs_")) or name.split(".")[0] in PICTURES:
            continue
        if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
            yield name, {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[value]
        elif is_number(value):
            yield name, value
