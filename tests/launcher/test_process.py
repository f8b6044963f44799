"""Processes that are no fedcomp runs but behave like some: killed, deaf, asked to leave; workers of several runs."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from joblib import Parallel, delayed

from fedcomp.cli import worker
from fedcomp.launcher.contract import GridRun, last_line, outcome
from fedcomp.launcher.joblib import Joblib
from fedcomp.launcher.process import Children
from fedcomp.launcher.slurm import Pack
from fedcomp.launcher.worker_pool import WorkerPool, close_idle
from fedcomp.records.status import Status, write_status
from tests.raising import raising

LEAVES = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGUSR2, lambda *_: (print('saved', flush=True), sys.exit(140)))\n"
    "print('ready', flush=True); time.sleep(60)"
)
DEAF = "import signal, time\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)\nprint('ready', flush=True); time.sleep(60)"
KILLED = "import os\nos.kill(os.getpid(), 9)"
FAILS = "print('fedcomp: error: this cannot be'); raise SystemExit(1)"


def _run(tmp_path: Path, number: int, code: str) -> GridRun:
    command, folder, log = (sys.executable, "-c", code), tmp_path / f"r{number}", tmp_path / f"{number}.log"
    return GridRun(number, (f"seed={number}",), command, folder, log)


def _see(children: Children, runs: list[GridRun]) -> list[int]:
    return list(Parallel(n_jobs=len(runs), prefer="threads")(delayed(children.run)(run) for run in runs))


def test_what_kills_one_leaves_the_others(tmp_path: Path) -> None:
    runs = [_run(tmp_path, number, code) for number, code in enumerate([KILLED, FAILS, "print('fine')"])]
    with Children() as children:
        assert _see(children, runs) == [-signal.SIGKILL, 1, 0]
    assert outcome(runs[0], -9).error == "killed by SIGKILL; the same command resumes it"
    assert outcome(runs[1], 1).error == "this cannot be"
    runs[2].log.write_text("")
    assert outcome(runs[2], 1).error == "it ended without a message; the same command resumes it"
    full = replace(runs[2], log=tmp_path)  # which cannot be written either
    with Children() as children:
        assert (outcome(full, children.run(full)).error or "").startswith(f"cannot write {tmp_path}: ")
    write_status_in(runs[2].folder, Status("finished", 3))
    assert outcome(runs[2], 0).error is None
    write_status_in(runs[1].folder, Status("failed", 0, "no such thing"))
    assert outcome(runs[1], 1).error == "no such thing"


def write_status_in(folder: Path, status: Status) -> None:
    folder.mkdir(exist_ok=True)
    write_status(folder, status)


@contextmanager
def _signalled_when_ready(*runs: GridRun) -> Iterator[None]:
    """Within the block this process gets a signal once all these runs are ready."""

    def wait() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until and not all(last_line(run.log) == "ready" for run in runs):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGUSR2)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize("number", [1, 2])
def test_a_signal_reaches_all_and_stops_what_has_not_begun(tmp_path: Path, number: int) -> None:
    runs = [_run(tmp_path, index, LEAVES) for index in range(number)]
    with Children(grace=30) as children, _signalled_when_ready(*runs):
        assert _see(children, runs) == [140] * number
        assert children.signal_received == signal.SIGUSR2
        assert children.run(_run(tmp_path, 9, "print('never')")) == 140
    assert [last_line(run.log) for run in runs] == ["saved"] * number
    assert not (tmp_path / "9.log").exists()


def test_joblib_says_once_what_an_interrupt_left(tmp_path: Path, capsys) -> None:
    """One whose state is saved, one that had none yet, one that was not started though it failed before."""
    runs = [_run(tmp_path, index, LEAVES) for index in range(3)]
    write_status_in(runs[0].folder, Status("interrupted", 12, "interrupted after round 12 of 20, state saved"))
    write_status_in(runs[2].folder, Status("failed", 0, "no such thing"))
    runs = [replace(run, command=(*run.command, "device=cpu")) for run in runs]
    with pytest.raises(SystemExit) as end, _signalled_when_ready(*runs[:2]):
        Joblib(n_jobs=2).launch(runs, tmp_path, lambda run: None)
    assert end.value.code == 128 + signal.SIGUSR2
    _, *lines, last = capsys.readouterr().err.splitlines()
    assert sorted(line.split("] ")[1] for line in lines) == [
        "run 0 (seed=0) interrupted after round 12 of 20, state saved",
        "run 1 (seed=1) interrupted before it could save a state",
    ]
    assert last == "fedcomp: interrupted, 1 of 3 runs not started; the same command resumes it"


def test_one_that_does_not_leave_in_time_is_killed(tmp_path: Path) -> None:
    run = _run(tmp_path, 0, DEAF)
    with Children(grace=0.2) as children, _signalled_when_ready(run):
        assert children.run(run) == -signal.SIGKILL


def test_a_pack_saves_first_and_requeues_then(tmp_path: Path) -> None:
    """submitit's handler, which requeues the job and exits, runs once its runs have left; no result is returned."""
    run, seen = _run(tmp_path, 0, LEAVES), []

    def requeue(number, frame):
        seen.append(last_line(run.log))
        raise SystemExit(255)

    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        with pytest.raises(SystemExit) as end, _signalled_when_ready(run):
            Pack(grace=30)([run])
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert end.value.code == 255
    assert seen == ["saved"]


COMMON = ("eval_every=2", "pictures=false", "device=cpu", "compressor=qsgd")
SETTINGS = ("rounds=2", *COMMON)
OTHER = ("rounds=4", *COMMON, "seed=7", "dtype=float64", "threads=3", "wire=packed")


def _command(folder: Path, number: int, *overrides: str) -> GridRun:
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
        assert [pool.run(_command(used, number, *what)) for number, what in enumerate([OTHER, SETTINGS])] == [0, 0]
    close_idle()
    monkeypatch.delenv("PYTHONPROFILEIMPORTTIME")
    subprocess.run(_command(fresh, 0, *SETTINGS).command, check=True, capture_output=True)
    (lines, tensors), (expected_lines, expected) = _results(used), _results(fresh)
    assert lines == expected_lines
    assert len(tensors) == len(expected) > 0
    assert all(torch.equal(one, other) for one, other in zip(tensors, expected))
    assert not re.search(r"^import time:.*\| +(torch|numpy|hydra)$", (used / "1.log").read_text(), re.M)


def test_a_worker_whose_grid_was_killed_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", raising(BrokenPipeError()))
    worker._answer(0)


def test_what_kills_a_run_leaves_its_worker_and_what_kills_the_worker_leaves_the_pool(tmp_path: Path) -> None:
    kills, fine = "import os; os.kill(os.{}(), 9)", "print('fine')"
    codes = (kills.format("getpid"), fine, kills.format("getppid"), fine)
    commands = [(sys.executable, "-c", code) for code in codes]
    runs = [GridRun(number, (), one, tmp_path, tmp_path / f"{number}.log") for number, one in enumerate(commands)]
    with WorkerPool() as pool:
        assert [pool.run(run) for run in runs] == [-signal.SIGKILL, 0, -signal.SIGKILL, 0]
    assert [run.log.read_text() for run in runs if "fine" in run.command[-1]] == ["fine\n"] * 2
