"""Drawing in several processes: what kills one ends the report in one line."""

import os
import signal
from pathlib import Path

import pytest

from fedcomp.reporting import build
from fedcomp.reporting.pictures.picture import Picture


def killed(picture: Picture, paths: list[Path]) -> None:
    """As the kernel does where memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.thorough
def test_a_killed_drawing_process_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "draw", killed)
    monkeypatch.setattr(build, "FEW_PANELS", -1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    pictures = [Picture(name, "", "", (), 1, ()) for name in ("one", "two")]
    with pytest.raises(ValueError, match=r"killed \(out of memory\?\); the tables and report.html are in .*again$"):
        build.draw_all(pictures, tmp_path)
