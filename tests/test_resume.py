"""Real processes, really killed: a run that is started again ends bit for bit like one that was never stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedcomp.tracking.record import read_lines
from fedcomp.tracking.status import read_status

# Adam on the server, error feedback on both links, ragged clients, rounds without anybody: all
# state there is.
COMMAND = [
    sys.executable,
    "-m",
    "fedcomp",
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
    "threads=1",
]


def _start(root: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*COMMAND, f"output_root={root}"], stderr=subprocess.PIPE, text=True, cwd=root, env=environment
    )


def _folder(root: Path) -> Path:
    return next(root.rglob("config.yaml")).parent


def _wait_for_round(process: subprocess.Popen[str], root: Path, wanted: int) -> int:
    """Wait until the record holds round `wanted`; returns the last round it holds then."""
    for _ in range(3000):
        found = next(iter(root.rglob("metrics.jsonl")), None)
        lines = read_lines(found) if found else []
        if lines and lines[-1]["round"] >= wanted:
            return int(lines[-1]["round"])
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    raise AssertionError("the run makes no progress")


def _result(root: Path):
    folder = _folder(root)
    lines = [{**line, "seconds": 0} for line in read_lines(folder / "metrics.jsonl")]
    return lines, torch.load(folder / "checkpoint.pt", weights_only=True)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("unbroken")
    process = _start(root)
    assert process.wait(timeout=120) == 0
    return _result(root)


def _assert_equal(root: Path, unbroken) -> None:
    lines, checkpoint = _result(root)
    assert lines == unbroken[0]
    assert checkpoint["ledger"] == unbroken[1]["ledger"]
    assert checkpoint["state"].keys() == unbroken[1]["state"].keys()
    assert all(torch.equal(tensor, unbroken[1]["state"][name]) for name, tensor in checkpoint["state"].items())


def test_sigkill_at_any_moment(tmp_path: Path, unbroken) -> None:
    for wanted in (5, 30):
        process = _start(tmp_path)
        _wait_for_round(process, tmp_path, wanted)
        time.sleep(0.013 * wanted % 0.1)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        status = read_status(_folder(tmp_path))
        assert status is not None
        assert status.state == "running"
    process = _start(tmp_path)
    assert "resuming after round" in process.communicate(timeout=120)[1]
    assert process.returncode == 0
    _assert_equal(tmp_path, unbroken)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_saves_and_says_so(tmp_path: Path, unbroken, number, code) -> None:
    process = _start(tmp_path)
    _wait_for_round(process, tmp_path, 10)
    process.send_signal(number)
    shown = process.communicate(timeout=120)[1]
    assert process.returncode == code
    assert "interrupted after round" in shown
    assert "state saved; the same command goes on" in shown
    assert "Traceback" not in shown
    status = read_status(_folder(tmp_path))
    assert status is not None
    assert status.state == "interrupted"
    assert f"interrupted after round {status.round} of 60" in shown
    assert _start(tmp_path).wait(timeout=120) == 0
    _assert_equal(tmp_path, unbroken)
