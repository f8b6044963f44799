"""The tests find planted faults, so that a lighter suite can be trusted."""

import subprocess
import sys

import pytest

from tests.faults.plant import EXTRAS, ROOT, Fault, faults, plantable

ROOMS = {folder.name for folder in (ROOT / "fedcomp").iterdir() if (folder / "__init__.py").is_file()}


def test_every_fault_can_be_planted() -> None:
    for fault in faults():
        assert (ROOT / "fedcomp" / fault.file).read_text().count(fault.was) == 1, fault
        assert fault.was != fault.now
        assert all((ROOT / "tests" / test.split("::")[0]).is_file() for test in fault.tests), fault
        assert fault.needs is None or fault.needs in EXTRAS, fault


def test_every_room_has_a_fault() -> None:
    assert ROOMS - {fault.file.split("/")[0] for fault in faults()} == set()


def test_a_fault_whose_library_is_missing_is_skipped_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "hf", ("torch", "no_such_library"))
    lines: list[str] = []
    fault = Fault("model/hf/export.py", "one", "two", ("model/hf/test_export.py",), "hf")
    other = Fault("core/rows.py", "one", "two", ("core/test_rows.py",))
    assert plantable([fault, other], lines.append) == [other]
    assert lines == ["skipped, without no_such_library: model/hf/export.py: one -> two"]


@pytest.mark.slow
def test_every_fault_is_found() -> None:
    code = "from tests.faults.plant import faults, not_found, plantable; print(not_found(plantable(faults())))"
    assert _printed(code) == "[]"


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
