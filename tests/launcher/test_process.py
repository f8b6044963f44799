"""Processes that are no fedcomp runs but behave like some: killed, deaf, asked to leave."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from joblib import Parallel, delayed

from fedcomp.launcher.contract import GridRun, last_line, outcome
from fedcomp.launcher.process import Children
from fedcomp.records.status import Status, write_status

LEAVES = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGUSR2, lambda *_: (print('saved', flush=True), sys.exit(140)))\n"
    "print('ready', flush=True); time.sleep(60)"
)
DEAF = "import signal, time\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)\nprint('ready', flush=True); time.sleep(60)"
KILLED = "import os\nos.kill(os.getpid(), 9)"
FAILS = "print('fedcomp: error: this cannot be'); raise SystemExit(1)"


def _run(tmp_path: Path, number: int, code: str) -> GridRun:
    return GridRun(
        number, (f"seed={number}",), (sys.executable, "-c", code), tmp_path / f"r{number}", tmp_path / f"{number}.log"
    )


def _see(children: Children, runs: list[GridRun]) -> list[int]:
    return list(Parallel(n_jobs=len(runs), prefer="threads")(delayed(children.run)(run) for run in runs))


def test_what_kills_one_leaves_the_others(tmp_path: Path) -> None:
    runs = [_run(tmp_path, number, code) for number, code in enumerate([KILLED, FAILS, "print('fine')"])]
    with Children() as children:
        assert _see(children, runs) == [-signal.SIGKILL, 1, 0]
    assert outcome(runs[0], -9).error == "killed by SIGKILL; the same command resumes it"
    assert outcome(runs[1], 1).error == "this cannot be"
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
    from fedcomp.launcher.joblib import Joblib

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
    from fedcomp.launcher.slurm import Pack

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
