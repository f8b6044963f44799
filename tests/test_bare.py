"""Tests see a fresh machine, whatever is installed; one that hangs or kills its process ends the suite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SEES = """
import os, subprocess
from pathlib import Path
import pytest

def test_a_program_of_this_machine():
    subprocess.run(["srun"], check=True)

def test_the_same_in_a_shell():
    subprocess.run("srun", shell=True, check=True)

def test_variables():
    assert {"FEDCOMP_DATA", "SLURM_JOB_ID", "WANDB_API_KEY"} & os.environ.keys()

def test_writes_to_the_home_folder():
    assert not any(Path.home().iterdir())
    Path("~/.cache/fedcomp").expanduser().mkdir(parents=True)

def test_the_next_finds_it_empty():
    assert not any(Path.home().iterdir())

@pytest.mark.slurm
def test_one_that_is_marked_sees_the_machine():
    subprocess.run(["srun"], check=True)
    assert os.environ["SLURM_JOB_ID"] == "7"

@pytest.mark.program("srun", "sbatch")
def test_one_that_names_it_too():
    subprocess.run("srun", shell=True, check=True)

@pytest.mark.program("sbatch")
def test_what_is_missing(): ...

@pytest.mark.data("there")
def test_data(): ...

@pytest.mark.data("there", "missing.csv")
def test_data_that_is_missing(): ...
"""
ABORTS = "import os\ndef test_one():\n    os.abort()\ndef test_two(): ..."
HANGS = "import signal\ndef test_one():\n    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n    while 1: ..."


def _pytest(folder: Path, *options: str, **variables: str) -> tuple[int, str]:
    """The status of a suite of its own, with this project's settings, and what it says."""
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", f"--rootdir={folder}", "-p", "tests.bare"]
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "ONEDNN_MAX_CPU_ISA": "ALL"}  # no plugin, nothing to be tried
    done = subprocess.run(
        [*command, "-p", "xdist", "-p", "no:cacheprovider", "-rA", *options, folder],
        cwd=ROOT,
        env=os.environ | quick | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.thorough
def test_a_test_sees_what_a_fresh_machine_has(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "test_sees.py").write_text(SEES)
    given = {"FEDCOMP_DATA": str(tmp_path), "SLURM_JOB_ID": "7", "WANDB_API_KEY": "key"}
    status, said = _pytest(tmp_path, "-n", "1", PATH=f"{tmp_path}:{os.environ['PATH']}", **given)
    assert status == 1, said
    outcomes = {kind: said.count(f"\n{kind} ") for kind in ("PASSED", "FAILED", "SKIPPED")}
    assert outcomes == {"PASSED": 5, "FAILED": 3, "SKIPPED": 2}, said
    assert "No such file or directory: 'srun'" in said
    assert "no sbatch here" in said
    assert "no missing.csv in" in said


@pytest.mark.thorough
def test_a_suite_ends_where_a_process_of_it_does_or_hangs(tmp_path: Path) -> None:
    """The one that hangs is deaf to signals, as one that waits in C."""
    (tmp_path / "test_aborts.py").write_text(ABORTS)
    (tmp_path / "test_hangs.py").write_text(HANGS)
    status, said = _pytest(tmp_path, "-n", "2", "-o", "faulthandler_timeout=0.3")
    assert status == 1, said
    for name, line in (("aborts", 3), ("hangs", 4)):
        assert f"crashed while running 'test_{name}.py::test_one'" in said
        assert f'test_{name}.py", line {line} in test_one' in said
