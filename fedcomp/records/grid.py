"""The files in a grid's own folder: `runs.jsonl`, which runs it has, and `jobs.jsonl`, their jobs of Slurm.

Both are appended to line by line; a half-written last line is left out.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedcomp.core.parse import parse_json
from fedcomp.records.atomic_write import explained

MANIFEST = "runs.jsonl"
"""One JSON line a run: `number`, `folder` (relative), `overrides`, and of the first run of each method `config`."""
JOBS = "jobs.jsonl"
"""One JSON line a run: `folder` (relative) and `job`."""


def listed_runs(grids: Iterable[Path]) -> Iterator[tuple[Path, str, dict[str, Any] | None]]:
    """(folder, overrides, config) of the runs of grids, each folder once.

    A grid gives the config of the first run of each method; None with the others, and in a grid of an earlier fedcomp.
    """
    seen = set()
    for grid in grids:
        for line in _lines(grid / MANIFEST, "overrides"):
            folder = (grid / line["folder"]).resolve()
            if folder not in seen:
                seen.add(folder)
                yield folder, " ".join(line["overrides"]), line.get("config")


def note_jobs(grid: Path, jobs: Mapping[Path, str]) -> None:
    """Add what was submitted: {a run's folder: its job, of an array `<array>_<task>`}."""
    grid.mkdir(parents=True, exist_ok=True)
    append(grid / JOBS, ({"folder": os.path.relpath(folder, grid), "job": job} for folder, job in jobs.items()))


def noted_jobs(grid: Path) -> Iterator[tuple[Path, str]]:
    """(a run's folder, its job), in the order submitted; nothing if the grid had no jobs."""
    for line in _lines(grid / JOBS, "job"):
        yield (grid / line["folder"]).resolve(), str(line["job"])


def append(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Add JSON lines to a grid's file. Raises ValueError: it cannot be written."""
    with explained(path), path.open("a") as file:
        file.writelines(json.dumps(line, default=str) + "\n" for line in lines)


def _lines(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """The lines, which have a `folder` and a `key`. Raises ValueError: one is damaged."""
    for number, raw in enumerate(path.read_bytes().split(b"\n")[:-1] if path.exists() else (), start=1):
        try:
            line = parse_json(raw)
            if not {"folder", key} <= line.keys():
                raise ValueError(f"there is no {key} or no folder")
            words = line[key]  # or one word, whose letters are texts
            if not isinstance(line["folder"], str) or not all(isinstance(one, str) for one in words):
                raise ValueError("no text where one is due")
            if type(line.get("config", {}).get("rounds", 0)) is not int:
                raise ValueError("no number where one is due")
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{path}, line {number} is damaged: {raw[:60]!r}; remove it to read the rest") from error
        yield line
