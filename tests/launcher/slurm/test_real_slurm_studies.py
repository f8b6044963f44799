"""One study of Optuna whose trials run on a real Slurm: through the launcher, and by several jobs that share it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.records.status import read_status
from fedcomp.sweeper.slots import slot

optuna = pytest.importorskip("optuna", reason="no Optuna here: pip install 'fedcomp[grids]'")
pytestmark = [pytest.mark.slow, pytest.mark.slurm]

SEARCH = ("sweeper=optuna", "sweeper.n_trials=5", "sweeper.startup=2", "client.lr=interval(0.01, 1)", "name=search")
RUN = ("rounds=2", "num_clients=4", "client.batch_size=40", "threads=1", "device=cpu", "pictures=false")
SLURM = ("launcher=slurm", "launcher.mem_gb=1", "launcher.cpus=1")
PATIENCE = 600
ROOT = Path(__file__).resolve().parents[3]


def _trials(root: Path) -> list[optuna.trial.FrozenTrial]:
    storage = optuna.storages.journal.JournalFileBackend(str(root / "search" / "study" / "study.log"))
    study = optuna.load_study(study_name="search", storage=optuna.storages.JournalStorage(storage))
    return list(study.get_trials())


def _assert_searched(root: Path) -> None:
    """Five trials, each with a value of its own, and a finished run for each."""
    trials = _trials(root)
    assert [trial.state for trial in trials] == [optuna.trial.TrialState.COMPLETE] * 5
    assert len({trial.params["client.lr"] for trial in trials}) == 5
    assert all(0.01 <= trial.params["client.lr"] <= 1 and 0 <= trial.value <= 1 for trial in trials)
    states = [read_status(path.parent) for path in root.rglob("status.json")]
    assert [one.state for one in states if one] == ["finished"] * 5


def test_trials_are_jobs_two_at_a_time(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "fedcomp", *SEARCH, *RUN, *SLURM, "sweeper.n_jobs=2", f"output_root={tmp_path}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("2 runs as 2 jobs of Slurm") == 2
    assert done.stderr.count("1 run as 1 job of Slurm") == 1
    assert "best of 5 trials" in done.stderr
    _assert_searched(tmp_path)
    again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert again.returncode == 0, again.stderr
    assert "jobs of Slurm" not in again.stderr, "all trials are there"


def test_two_commands_share_a_study_with_jobs_of_their_own(tmp_path: Path) -> None:
    words = (*SEARCH, *RUN, *SLURM, "sweeper.n_jobs=2", "sweeper.shared=true", f"output_root={tmp_path}")
    command = (sys.executable, "-m", "fedcomp", *words)
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate(timeout=PATIENCE)[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert all("jobs of Slurm" in one for one in said), "each has submitted some"
    _assert_searched(tmp_path)


def test_the_workers_of_an_array_share_a_study(tmp_path: Path) -> None:
    """As in docs/grids.md: each job of the array is a command that shares the study and runs its trials itself."""
    command = (sys.executable, "-m", "fedcomp", *SEARCH, *RUN, "sweeper.shared=true", f"output_root={tmp_path}")
    paths = f"PYTHONPATH={ROOT}:{os.environ.get('PYTHONPATH', '')}"
    options = ("--array=1-2", "--requeue", "--mem=1G", "--wait", f"--output={tmp_path}/%a.log", "--wrap")
    submit = ("sbatch", *options, f"env {paths} {shlex.join(command)}")
    done = subprocess.run(submit, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    assert done.returncode == 0, [done.stderr, *(path.read_text() for path in tmp_path.glob("*.log"))]
    _assert_searched(tmp_path)


def test_a_second_command_that_does_not_share_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "search" / "study"
    command = (sys.executable, "-m", "fedcomp", *SEARCH, *RUN, *SLURM, f"output_root={tmp_path}")
    with slot(folder, "search", shared=False):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr.startswith("fedcomp: error: ")
    assert done.stderr.count("\n") == 1
    assert "jobs of Slurm" not in done.stderr
