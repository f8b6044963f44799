"""The tests find planted faults, so that a lighter suite can be trusted."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.plant import ROOT, Fault, faults

ROOMS = {folder.name for folder in (ROOT / "fedcomp").iterdir() if (folder / "__init__.py").is_file()}


def test_every_fault_can_be_planted() -> None:
    for fault in faults():
        assert (ROOT / "fedcomp" / fault.file).read_text().count(fault.was) == 1, fault
        assert fault.was != fault.now
        assert all((ROOT / "tests" / test.split("::")[0]).is_file() for test in fault.tests), fault


def test_every_room_has_a_fault() -> None:
    assert ROOMS - {fault.file.split("/")[0] for fault in faults()} == set()


@pytest.mark.slow
def test_every_fault_is_found() -> None:
    assert _printed("from tests.faults.plant import faults, not_found; print(not_found(faults()))") == "[]"


@pytest.mark.thorough
def test_what_no_test_finds_is_said() -> None:
    harmless = Fault("core/rows.py", "Scans and scatters", "Scatters and scans", ("core/test_rows.py",))
    assert _printed(f"from tests.faults.plant import Fault, not_found; print(*not_found([{harmless!r}]))").startswith(
        "core/rows.py: Scans and scatters -> Scatters and scans is not found by core/test_rows.py, status 0:"
    )


def _printed(code: str) -> str:
    """What a process of its own prints: this one has threads, which a fork would leave in the middle of their work."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout.strip()
