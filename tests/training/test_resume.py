"""Real processes, really stopped: a run that is started again ends bit for bit like one that was never stopped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.left import assert_same_run, status_of, wait_for_round

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
    wait_for_round(process, root, 5)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert status_of(root).state == "running"
    for number, code, wanted in ((signal.SIGINT, 130, 15), (signal.SIGTERM, 143, 30)):
        process = _start(root)
        wait_for_round(process, root, wanted)
        process.send_signal(number)
        shown = process.communicate(timeout=120)[1]
        assert process.returncode == code
        assert "resuming after round" in shown
        status = status_of(root)
        assert status.state == "interrupted"
        assert f"interrupted after round {status.round} of 60, state saved; the same command resumes it" in shown
        assert "Traceback" not in shown
    process = _start(root)
    assert f"resuming after round {status.round}" in process.communicate(timeout=120)[1]
    assert process.returncode == 0

    assert fedcomp(*OPTIONS, f"output_root={tmp_path / 'unbroken'}") == 0
    assert_same_run(root, tmp_path / "unbroken")


def _start(root: Path) -> subprocess.Popen[str]:
    command, environment = [sys.executable, "-m", "fedcomp", *OPTIONS], {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*command, f"output_root={root}"], stderr=subprocess.PIPE, text=True, cwd=root, env=environment
    )
