"""Runs that torchrun starts in several processes: killed, stopped, resumed, and with errors, each said in one line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.records.status import read_status
from tests.left import assert_same_run, wait_for_round

ROOT = Path(__file__).resolve().parents[2]

# Server and client memories, ragged clients, cohorts of any size, nobody at all now and then.
LONG = """
rounds=120 num_clients=12 chunk_size=2 eval_every=5 checkpoint_every=4 pictures=false partition=dirichlet
participation=bernoulli participation.probability=0.4 compressor=topk compressor.feedback=error compressor@downlink=sign
downlink.feedback=error server=adam
"""


def _torchrun(size: int, root: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={size}"]
    command += ["-m", "fedcomp", *LONG.split(), *more, f"output_root={root}"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def _workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes that torchrun started, by rank."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    processes = {}
    for child in children:
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        processes |= {int(entry[5:]): int(child) for entry in environment if entry.startswith(b"RANK=")}
    return [processes[rank] for rank in sorted(processes)]


def _said(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("fedcomp:")]


@pytest.mark.slow
def test_torchrun_killed_stopped_and_resumed_by_another_number_of_processes(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fedcomp", *LONG.split(), f"output_root={tmp_path / 'one'}"]
    subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True, timeout=300)
    root = tmp_path / "several"

    for victim, size in ((1, 3), (0, 2)):  # another process is killed, then the main one
        process = _torchrun(size, root)
        folder = wait_for_round(process, root, 10 if victim else 30)
        os.kill(_workers(process)[victim], signal.SIGKILL)
        stderr = process.communicate(timeout=120)[1]
        assert process.returncode == 1
        assert len(_said(stderr)) == 1, stderr
        assert "was killed or cannot be reached; the last checkpoint holds" in _said(stderr)[0]
        status = read_status(folder)
        assert status.state == ("failed" if victim else "running")

    process = _torchrun(3, root)  # one process is asked to stop: all do, after the same round
    folder = wait_for_round(process, root, 50)
    os.kill(_workers(process)[2], signal.SIGTERM)
    stderr = process.communicate(timeout=120)[1]
    (line,) = _said(stderr)
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "interrupted"
    done = f"interrupted after round {status['round']} of 120"
    assert line == f"fedcomp: {done}, state saved; the same command resumes it"

    for number, after in ((signal.SIGINT, 70), (signal.SIGHUP, 90)):  # Ctrl-C, a closed terminal: passed on by torchrun
        process = _torchrun(2, root)
        folder = wait_for_round(process, root, after)
        process.send_signal(number)
        (line,) = _said(process.communicate(timeout=120)[1])
        assert "state saved; the same command resumes it" in line

    process = _torchrun(2, root)
    stderr = process.communicate(timeout=300)[1]
    assert process.returncode == 0, stderr
    assert "resuming after round" in stderr
    assert_same_run(tmp_path / "one", folder)

    process = _torchrun(2, root)  # finished: nothing to do
    assert "already finished" in process.communicate(timeout=120)[1]
    assert process.returncode == 0


@pytest.mark.slow
def test_a_study_is_stopped_and_resumed_by_another_number_of_processes(tmp_path: Path) -> None:
    study = ("repeats=5", "wire=packed", "rounds=40")
    command = [sys.executable, "-m", "fedcomp", *LONG.split(), *study, f"output_root={tmp_path / 'one'}"]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=600)
    root = tmp_path / "several"
    process = _torchrun(2, root, *study)
    folder = wait_for_round(process, root, 15)
    os.kill(_workers(process)[1], signal.SIGTERM)
    (line,) = _said(process.communicate(timeout=300)[1])
    assert "state saved; the same command resumes it" in line
    process = _torchrun(3, root, *study)
    stderr = process.communicate(timeout=600)[1]
    assert process.returncode == 0, stderr
    assert "resuming after round" in stderr
    assert_same_run(tmp_path / "one", folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("client.lr=-1",), "client.lr=-1 must be"),
        (("compresor=topk",), "did you mean 'compressor'"),
        (("-m", "seed=0,1"), "torchrun starts one run in several processes, not a grid"),
        (("client.lr=1e30",), "lower client.lr"),
        (("num_clients=1",), "2 processes for 1 clients: start 1 at most (torchrun --nproc_per_node"),
        (("tracker=wandb", "tracker.mode=foo"), "tracker.mode=foo"),  # which the main process alone builds
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_error_is_one_line(tmp_path: Path, arguments, words) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "fedcomp"]
    options = (*arguments, "rounds=5", "pictures=false", f"output_root={tmp_path}")
    done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 1
    (line,) = _said(done.stderr)
    assert words in line
    assert line.startswith("fedcomp: error: ")
