"""A real Slurm: the one that answers here, or the one that FEDCOMP_SLURM_UP starts; else the tests are skipped.

FEDCOMP_SLURM_UP is a line of shell that brings up a Slurm and sets SLURM_CONF: `slurm-up.sh && source .../env.sh`.
The tests need the partitions `main` and `preemptible`, where a job in the first pushes one out of the second, and
accounting (sacct).
"""

import os
import shutil
import subprocess

import pytest


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Variables of a process that submits, beside those that are set; skips where there is no Slurm."""
    given = os.environ.get("FEDCOMP_SLURM_UP")
    if not _answers() and given:
        command = ["bash", "-c", 'eval "$FEDCOMP_SLURM_UP" >&2 && env -0']
        started = subprocess.run(command, capture_output=True, timeout=300)
        assert started.returncode == 0, started.stderr.decode()[-2000:]
        entries = (entry.partition("=") for entry in started.stdout.decode().split("\0") if entry)
        return {name: value for name, _, value in entries}
    if not _answers():
        pytest.skip("no Slurm here: sbatch and sinfo do not answer, and FEDCOMP_SLURM_UP starts none")
    return {}


@pytest.fixture(autouse=True)
def slurm(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason="no submitit here: pip install 'fedcomp[grids]'")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def _answers() -> bool:
    if shutil.which("sbatch") is None or shutil.which("sinfo") is None:
        return False
    asked = subprocess.run(["sinfo", "-h", "-o", "%P"], capture_output=True, text=True, timeout=60)
    return asked.returncode == 0 and bool(asked.stdout.strip())
