"""Real processes, really stopped: a run that is started again ends bit for bit like one that was never stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedcomp.records.metrics_file import read_lines
from fedcomp.records.status import Status, read_status

# Adam on the server, error feedback on both links, ragged clients, rounds without anybody: all
# state there is.
OPTIONS = [
    "rounds=60",
    "eval_every=5",
    "checkpoint_every=3",
    "partition=dirichlet",
    "participation=bernoulli",
    "participation.probability=0.1",
    "compressor=topk",
    "compressor.feedback=error",
    "compressor@downlink=sign",
    "downlink.feedback=error",
    "server=adam",
    "client.momentum=0.5",
    "pictures=false",
    "threads=1",
]


@pytest.mark.thorough
def test_a_run_that_is_stopped_in_every_way_ends_as_an_unbroken_one(fedcomp, tmp_path: Path) -> None:
    """SIGKILL, then Ctrl-C, then SIGTERM, each in a later piece of the same run, and then to the end."""
    root = tmp_path / "stopped"
    root.mkdir()
    process = _start(root)
    _wait_for_round(process, root, 5)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert _status(root).state == "running"
    for number, code, wanted in ((signal.SIGINT, 130, 15), (signal.SIGTERM, 143, 30)):
        process = _start(root)
        _wait_for_round(process, root, wanted)
        process.send_signal(number)
        shown = process.communicate(timeout=120)[1]
        assert process.returncode == code
        assert "resuming after round" in shown
        status = _status(root)
        assert status.state == "interrupted"
        assert f"interrupted after round {status.round} of 60, state saved; the same command resumes it" in shown
        assert "Traceback" not in shown
    process = _start(root)
    assert f"resuming after round {status.round}" in process.communicate(timeout=120)[1]
    assert process.returncode == 0

    assert fedcomp(*OPTIONS, f"output_root={tmp_path / 'unbroken'}") == 0
    (lines, checkpoint), (its_lines, its_checkpoint) = _result(root), _result(tmp_path / "unbroken")
    assert lines == its_lines
    assert checkpoint["ledger"] == its_checkpoint["ledger"]
    assert checkpoint["state"].keys() == its_checkpoint["state"].keys()
    assert all(torch.equal(tensor, its_checkpoint["state"][name]) for name, tensor in checkpoint["state"].items())


def _start(root: Path) -> subprocess.Popen[str]:
    command, environment = [sys.executable, "-m", "fedcomp", *OPTIONS], {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*command, f"output_root={root}"], stderr=subprocess.PIPE, text=True, cwd=root, env=environment
    )


def _folder(root: Path) -> Path:
    return next(root.rglob("config.yaml")).parent


def _status(root: Path) -> Status:
    status = read_status(_folder(root))
    assert status is not None
    return status


def _wait_for_round(process: subprocess.Popen[str], root: Path, wanted: int) -> None:
    """Wait until the record holds round `wanted`."""
    for _ in range(6000):
        found = next(iter(root.rglob("metrics.jsonl")), None)
        lines = read_lines(found) if found else []
        if lines and lines[-1]["round"] >= wanted:
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    raise AssertionError("the run makes no progress")


def _result(root: Path):
    folder = _folder(root)
    lines = [{**line, "seconds": 0} for line in read_lines(folder / "metrics.jsonl")]
    return lines, torch.load(folder / "checkpoint.pt", weights_only=True)
