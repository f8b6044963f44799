"""Grids on a real Slurm: runs that fail, are killed, are pushed out; all resume bit for bit. `make slow` runs them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcomp.records.metrics_file import read_lines
from fedcomp.records.status import read_status
from fedcomp.status.__main__ import main as status
from tests.left import assert_same_run
from tests.outside import write_files

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

SLURM = ("launcher=slurm", "launcher.mem_gb=1", "launcher.cpus=1", "device=cpu")
LONG = ("rounds=3000", "eval_every=100", "checkpoint_every=50", "compressor=topk", "compressor.feedback=error")
PATIENCE = 900  # seconds; a loaded machine takes a minute to


def _start(root: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fedcomp", *arguments, *SLURM, f"output_root={root}"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def _end(process: subprocess.Popen[str]) -> tuple[int, str]:
    said = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, said


def _wait(what: str, seen: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while not seen():
        assert process.poll() is None, f"the grid ended before {what}: {process.communicate()[1]}"
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


def _round(root: Path, seed: int) -> int:
    found = next(iter(root.rglob(f"seed={seed}/metrics.jsonl")), None)
    lines = read_lines(found) if found else []
    return int(lines[-1]["round"]) if lines else 0


def _process(root: Path, seed: int) -> int:
    """The process of a run, found by its command."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if {f"output_root={root}", f"seed={seed}", "hydra.mode=RUN"} <= set(words):
                return int(entry.name)
    raise AssertionError("no such run")


def _seed(root: Path, seed: int) -> Path:
    """The folder of this seed's run."""
    (folder,) = root.rglob(f"fedcomp/*/seed={seed}")
    return folder


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory):
    """Seeds 0 and 1 of LONG, in one go, in processes side by side."""
    root = tmp_path_factory.mktemp("unbroken")
    command = ["launcher=joblib", "launcher.n_jobs=2", "device=cpu", *LONG, "seed=0,1", f"output_root={root}"]
    subprocess.run([sys.executable, "-m", "fedcomp", *command], check=True, timeout=PATIENCE)
    return {seed: _seed(root, seed) for seed in (0, 1)}


def test_two_by_two_and_two_that_raise(tmp_path: Path, capsys) -> None:
    grid = ("rounds=3", "compressor=topk", "seed=range(2)")
    code, said = _end(_start(tmp_path, *grid, "compressor.fraction=0.1,0.2,7"))
    assert code == 1, said
    assert "6 runs as 6 jobs of Slurm" in said
    assert "failed: compressor.fraction=7 must be a number in (0, 1]" in said
    assert "4 finished, 2 failed" in said
    states = [read_status(path.parent) for path in sorted(tmp_path.rglob("status.json"))]
    assert sorted(one.state for one in states if one) == ["failed"] * 2 + ["finished"] * 4
    assert status([str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "6 runs: 4 done, 2 failed" in shown
    assert "compressor.fraction=7 must be a number" in shown
    code, said = _end(_start(tmp_path, *grid, "compressor.fraction=0.1,0.2"))
    assert code == 0, said
    assert "4 of 4 runs are finished already" in said
    assert "jobs of Slurm" not in said, "nothing is submitted when nothing is left to do"


def test_sigkill_of_one_of_two_packed_runs(tmp_path: Path, unbroken) -> None:
    grid = ("launcher.runs_per_gpu=2", *LONG, "seed=0,1")
    process = _start(tmp_path, *grid)
    _wait("a checkpoint", lambda: min(_round(tmp_path, 0), _round(tmp_path, 1)) >= 100, process)
    os.kill(_process(tmp_path, 0), signal.SIGKILL)
    code, said = _end(process)
    assert code == 1, said
    assert "2 runs as 1 job of Slurm" in said
    assert "run 0 (seed=0) failed: killed by SIGKILL; the same command resumes it" in said
    assert "run 1 (seed=1) finished" in said
    assert_same_run(_seed(tmp_path, 1), unbroken[1])
    assert status([str(tmp_path)]) == 1
    code, said = _end(_start(tmp_path, *grid))
    assert code == 0, said
    assert "1 of 2 runs are finished already" in said
    log = "".join(path.read_text() for path in tmp_path.rglob("0.log"))
    assert "resuming after round" in log
    assert_same_run(_seed(tmp_path, 0), unbroken[0])
    assert status([str(tmp_path)]) == 0


def test_preempted_runs_save_are_requeued_and_resume(tmp_path: Path, unbroken) -> None:
    process = _start(tmp_path, "launcher.partition=preemptible", "launcher.runs_per_gpu=2", *LONG, "seed=0,1")
    _wait("a checkpoint", lambda: min(_round(tmp_path, 0), _round(tmp_path, 1)) >= 100, process)
    room = subprocess.run(["sinfo", "-h", "-o", "%c"], capture_output=True, text=True).stdout.split()[0].rstrip("+")
    subprocess.run(["srun", "-p", "main", "-c", room, "sleep", "1"], check=True, timeout=PATIENCE, capture_output=True)
    code, said = _end(process)
    assert code == 0, said
    for seed in (0, 1):
        (log,) = (path.read_text() for path in tmp_path.rglob(f"grids/*/{seed}.log"))
        assert "interrupted after round" in log
        assert "state saved" in log
        saved = int(log.split("interrupted after round ")[1].split()[0])
        assert f"resuming after round {saved}" in log, "no round is lost"
        assert_same_run(_seed(tmp_path, seed), unbroken[seed])
    (supervisor,) = (path.read_text() for path in tmp_path.rglob("*_log.err"))
    assert "Requeued job" in supervisor or "REQUEUE" in supervisor.upper()


def test_a_job_out_of_time_is_requeued_as_often_as_allowed(tmp_path: Path) -> None:
    """Slurm's warning, sent by hand: submitit takes any in a job of ten minutes or less for the time limit's."""
    process = _start(tmp_path, "launcher.timeout_min=10", "launcher.max_num_timeout=1", *LONG, "seed=0")

    def log() -> str:
        return "".join(path.read_text() for path in tmp_path.rglob("grids/*/0.log"))

    _wait("a checkpoint", lambda: _round(tmp_path, 0) >= 100, process)
    (job,) = (path.name.removesuffix("_submission.sh") for path in tmp_path.rglob("[0-9]*_submission.sh"))
    subprocess.run(["scancel", "--signal=USR2", job], check=True)
    _wait("the second piece", lambda: "resuming after round" in log(), process)
    resumed = _round(tmp_path, 0)
    _wait("more rounds", lambda: _round(tmp_path, 0) > resumed, process)
    subprocess.run(["scancel", "--signal=USR2", job], check=True)
    code, said = _end(process)
    assert code == 1, said
    assert "run 0 (defaults) interrupted after round" in said
    # Of the last piece; the first one may be ended by its requeueing before it has said so.
    assert "state saved; the same command resumes it" in log().rpartition("resuming after round")[2]


def test_ctrl_c_leaves_the_jobs(tmp_path: Path) -> None:
    process = _start(tmp_path, "rounds=3", "seed=0,1", "launcher.sbatch=['begin=now+1hour']")
    _wait("the submission", lambda: list(tmp_path.rglob("*_submission.sh")), process)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    code, said = _end(process)
    assert code == 130, said
    assert "the jobs go on: `fedcomp-status" in said
    number = said.split("`scancel ")[1].split("`")[0]
    queued = subprocess.run(["squeue", "-h", "-j", number], capture_output=True, text=True).stdout
    subprocess.run(["scancel", number], check=True)
    assert queued.strip()


def test_what_slurm_refuses_is_one_line(tmp_path: Path) -> None:
    code, said = _end(_start(tmp_path, "seed=0,1", "launcher.partition=nowhere"))
    assert code == 2
    last = said.splitlines()[-1]  # sbatch has had its own word before
    assert last.startswith("fedcomp: error: sbatch refuses: ")
    assert "partition" in last


SEEN = """
import os
from torch import nn

def seen():
    print("CUDA_VISIBLE_DEVICES is", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
    return nn.Linear(64, 10)
"""


def test_packed_runs_share_one_gpu(tmp_path: Path) -> None:
    gres = subprocess.run(["sinfo", "-h", "-o", "%G"], capture_output=True, text=True).stdout
    if "gpu" not in gres:
        pytest.skip("this Slurm has no GPUs, not even pretend ones (SLURM_DEV_GPUS=2)")
    choice = "_target_: seen.seen\n_partial_: true\n"
    mine = write_files(tmp_path / "mine", {"seen.py": SEEN, "model/seen.yaml": choice})
    gpu = ("launcher.gpus=1", "launcher.runs_per_gpu=2", "model=seen", "rounds=1", "seed=range(4)")
    code, said = _end(_start(tmp_path / "out", "--config-dir", str(mine), *gpu))
    assert code == 0, said
    assert "4 runs as 2 jobs of Slurm" in said
    visible = []
    for number in range(4):
        (log,) = (path.read_text() for path in tmp_path.rglob(f"grids/*/{number}.log"))
        visible.append(log.split("CUDA_VISIBLE_DEVICES is ")[1].split()[0])
    assert visible[0] == visible[1]
    assert visible[2] == visible[3]
    assert all(one.isdigit() for one in visible)


SEVERAL = ("launcher.processes_per_run=2", "launcher.nodes=2", "launcher.sbatch=[nodes=1,ntasks-per-node=2]")
"""Two tasks, each with a torchrun of its own, as on two nodes; here both are on the one there is."""
SHARED = ("rounds=300", "eval_every=20", "checkpoint_every=10", "chunk_size=5", *LONG[3:])


def test_runs_of_several_processes_are_packed_requeued_and_resume(tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    command = ["-m", "device=cpu", *SHARED, "seed=0,1", f"output_root={alone}"]
    subprocess.run([sys.executable, "-m", "fedcomp", *command], check=True, timeout=PATIENCE)
    root = tmp_path / "several"
    limits = ("launcher.runs_per_gpu=2", "launcher.timeout_min=10", "launcher.max_num_timeout=1")
    process = _start(root, *SEVERAL, *limits, *SHARED, "seed=0,1")
    _wait("a checkpoint", lambda: min(_round(root, 0), _round(root, 1)) >= 40, process)
    (job,) = (path.name.removesuffix("_submission.sh") for path in root.rglob("[0-9]*_submission.sh"))
    subprocess.run(["scancel", "--signal=USR2", job], check=True)
    code, said = _end(process)
    assert code == 0, said
    assert "2 runs as 1 job of Slurm" in said
    for seed in (0, 1):
        (log,) = (path.read_text() for path in root.rglob(f"grids/*/{seed}.log"))
        assert "2 processes share cohorts of 20 clients, 5 at once" in log
        assert "resuming after round" in log
        assert_same_run(_seed(root, seed), _seed(alone, seed))


def test_more_processes_than_clients_is_one_line(tmp_path: Path) -> None:
    code, said = _end(_start(tmp_path, *SEVERAL, "num_clients=1", "rounds=3", "seed=0,1"))
    assert code == 2
    assert said.count("error: 2 processes for 1 clients: start 1 at most") == 1, said
    assert "jobs of Slurm" not in said
