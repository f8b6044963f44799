"""Runs as they lie on disk: each folder with a record or a status is a run, whatever became of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcomp.records import metrics_file as record
from fedcomp.records import status
from fedcomp.records.metrics_file import Line
from fedcomp.report.labels import without_rooms


@dataclass(frozen=True)
class RecordedRun:
    """One run.

    Attributes:
        folder: where it lies.
        config: its resolved config; empty if unreadable.
        seed: from the config, else from the folder's name `seed=<n>`, else None.
        state: finished, running (also: killed), failed, interrupted; `unreadable` if its files cannot be understood.
        error: one line for a failed or unreadable run.
        lines: its evaluations, in order of rounds.
    """

    folder: Path
    config: dict[str, Any]
    seed: int | None
    state: str
    error: str | None = None
    lines: list[Line] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether it may stand in a table: it went to its end and was evaluated."""
        return self.state == "finished" and bool(self.lines)


def find(paths: Iterable[str | Path]) -> list[RecordedRun]:
    """Every run in or under the given folders, in the order of their paths, each once.

    Raises:
        ValueError: a path does not exist, or there is no run under any of them.
    """
    roots = [Path(path) for path in paths]
    for root in roots:
        if not root.is_dir():
            raise ValueError(f"{root} is no folder; give the folder of one run, or one that holds runs (outputs/)")
    folders: dict[Path, Path] = {}
    for root in roots:
        for folder in _folders(root):
            folders.setdefault(folder.resolve(), folder)
    if not folders:
        listed = ", ".join(map(str, roots))
        raise ValueError(f"no run found under {listed}: a run is a folder that holds {record.FILE}")
    return [read(folder) for folder in folders.values()]


def read(folder: Path) -> RecordedRun:
    """One run; files that cannot be understood make it `unreadable`, they raise nothing."""
    match = re.fullmatch(r"seed=(\d+)", folder.name)
    seed = int(match[1]) if match else None
    try:
        config = _read_config(folder / "config.yaml")
        lines = record.read_lines(folder / record.FILE) if (folder / record.FILE).exists() else []
        now = status.read_status(folder)
        if now is not None and now.state == "finished" and lines and {"rounds", "eval_every"} <= config.keys():
            found = [int(line["round"]) for line in lines]
            record.check_complete(folder / record.FILE, found, now.round, config["rounds"], config["eval_every"])
    except ValueError as error:
        return RecordedRun(folder, {}, seed, "unreadable", str(error))
    state = now.state if now is not None else "running"
    return RecordedRun(folder, config, config.get("seed", seed), state, now.error if now is not None else None, lines)


def _folders(root: Path) -> Iterator[Path]:
    """Folders of runs under `root`, itself included, sorted; hidden folders are passed over."""
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if record.FILE in files or status.FILE in files:
            yield Path(folder)


def _read_config(path: Path) -> dict[str, Any]:
    """The resolved config. Raises ValueError: missing or no YAML mapping."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is 10 times faster
    try:
        config = yaml.load(path.read_bytes(), Loader=loader)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no config")
    return without_rooms(config)
