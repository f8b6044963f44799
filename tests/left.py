"""What a run leaves in its folder, for tests that look at it or compare two runs."""

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedcomp.records.metrics_file import read_lines
from fedcomp.records.status import Status, read_status
from tests.forked import Forked


def folder_of(root: Path) -> Path:
    """The folder of the only run below `root`."""
    (folder,) = {file.parent for name in ("config.yaml", "metrics.jsonl") for file in root.rglob(name)}
    return folder


def record(root: Path) -> list[dict[str, float]]:
    """The lines of the only run below `root`, without their times."""
    return [{**line, "seconds": 0} for line in read_lines(folder_of(root) / "metrics.jsonl")]


def status_of(root: Path) -> Status:
    """Of the only run below `root`."""
    status = read_status(folder_of(root))
    assert status is not None
    return status


def checkpoint_of(root: Path) -> dict[str, Any]:
    """Of the only run below `root`."""
    return torch.load(folder_of(root) / "checkpoint.pt", weights_only=True)


def assert_same_run(one: Path, other: Path) -> None:
    """The only runs below two folders have the same record but for times, the same repetitions, status, checkpoint."""
    assert record(one) == record(other)
    assert replace(status_of(one), record={}) == replace(status_of(other), record={})
    left, right = checkpoint_of(one), checkpoint_of(other)
    assert (left["round"], left["ledger"]) == (right["round"], right["ledger"])
    assert left["state"].keys() == right["state"].keys()
    assert all(torch.equal(tensor, right["state"][name]) for name, tensor in left["state"].items())
    repetitions = [folder_of(root) / "repetitions.jsonl" for root in (one, other)]
    contents = [file.read_bytes() if file.exists() else None for file in repetitions]
    assert contents[0] == contents[1]


def wait_for_round(process: subprocess.Popen[str] | Forked, root: Path, wanted: int) -> Path:
    """Wait until the record of the run that a process makes below `root` holds a round. Returns its folder."""
    for _ in range(6000):
        found = next(iter(root.rglob("metrics.jsonl")), None)
        lines = read_lines(found) if found else []
        if found and lines and lines[-1]["round"] >= wanted:
            return found.parent
        assert process.poll() is None, process.shown() if isinstance(process, Forked) else process.communicate()[1]
        time.sleep(0.01)
    raise AssertionError("the run makes no progress")
