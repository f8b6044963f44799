"""A run in a worker that has had others is the run of a fresh process, and imports nothing again."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedcomp.launcher.contract import GridRun
from fedcomp.launcher.worker_pool import WorkerPool, close_idle

COMMON = ("eval_every=2", "pictures=false", "device=cpu", "compressor=qsgd")
SETTINGS = ("rounds=2", *COMMON)
OTHER = ("rounds=4", *COMMON, "seed=7", "dtype=float64", "threads=3", "wire=packed")


def _run(folder: Path, number: int, *overrides: str) -> GridRun:
    command = (sys.executable, "-m", "fedcomp", *overrides, f"output_root={folder}")
    return GridRun(number, overrides, command, folder, folder / f"{number}.log")


def _results(root: Path) -> tuple[list[dict[str, float]], list[torch.Tensor]]:
    """The record without its times, and the tensors of the checkpoint, of the run of seed 0."""
    (folder,) = root.glob("fedcomp/*/seed=0")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = torch.load(folder / "checkpoint.pt", weights_only=False)
    tensors = [value for value in torch.utils._pytree.tree_leaves(kept) if isinstance(value, torch.Tensor)]
    return [{name: value for name, value in line.items() if "seconds" not in name} for line in lines], tensors


@pytest.mark.thorough
def test_a_used_worker_runs_as_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used, fresh = tmp_path / "used", tmp_path / "fresh"
    fresh.mkdir()
    close_idle()
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # which the logs show
    with WorkerPool() as pool:
        assert [pool.run(_run(used, number, *what)) for number, what in enumerate([OTHER, SETTINGS])] == [0, 0]
    close_idle()
    monkeypatch.delenv("PYTHONPROFILEIMPORTTIME")
    subprocess.run(_run(fresh, 0, *SETTINGS).command, check=True, capture_output=True)
    (lines, tensors), (expected_lines, expected) = _results(used), _results(fresh)
    assert lines == expected_lines
    assert len(tensors) == len(expected) > 0
    assert all(torch.equal(one, other) for one, other in zip(tensors, expected))
    assert not re.search(r"^import time:.*\| +(torch|numpy|hydra)$", (used / "1.log").read_text(), re.M)


def test_what_kills_a_run_leaves_its_worker_and_what_kills_the_worker_leaves_the_pool(tmp_path: Path) -> None:
    kills, fine = "import os; os.kill(os.{}(), 9)", "print('fine')"
    codes = (kills.format("getpid"), fine, kills.format("getppid"), fine)
    commands = [(sys.executable, "-c", code) for code in codes]
    runs = [GridRun(number, (), one, tmp_path, tmp_path / f"{number}.log") for number, one in enumerate(commands)]
    with WorkerPool() as pool:
        assert [pool.run(run) for run in runs] == [-signal.SIGKILL, 0, -signal.SIGKILL, 0]
    assert [run.log.read_text() for run in runs if "fine" in run.command[-1]] == ["fine\n"] * 2
