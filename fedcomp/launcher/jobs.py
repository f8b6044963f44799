"""Which job of Slurm each run of a grid was given to, so that the state of a run that waits can be looked up."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE = "jobs.jsonl"
"""In a grid's own folder, one JSON line a run: `folder` (relative) and `job`."""


def note_jobs(grid: Path, jobs: Mapping[Path, str]) -> None:
    """Add what was submitted: {a run's folder: its job, of an array `<array>_<task>`}."""
    grid.mkdir(parents=True, exist_ok=True)
    with (grid / FILE).open("a") as file:
        for folder, job in jobs.items():
            file.write(json.dumps({"folder": os.path.relpath(folder, grid), "job": job}) + "\n")


def noted_jobs(grid: Path) -> Iterator[tuple[Path, str]]:
    """(a run's folder, its job), in the order submitted; nothing if the grid had no jobs."""
    try:
        lines = (grid / FILE).read_bytes().split(b"\n")[:-1]  # a half-written last line is passed over
    except FileNotFoundError:
        return
    for raw in lines:
        line = json.loads(raw)
        yield (grid / line["folder"]).resolve(), str(line["job"])
