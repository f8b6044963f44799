"""How console commands end: a reader that leaves, a file that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.records.grid import JOBS, note_jobs
from fedcomp.runtime.command import exit_status


def _unread(script: str, *words: str) -> tuple[int, str]:
    """Exit status and standard error of a console script whose standard output nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    code = f"import sys; from fedcomp.cli import entry_points; sys.argv[1:] = {list(words)}; entry_points.{script}()"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, env=env)
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["experiment="], ["--help", "compressor"]])
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    assert _unread("fedcomp", *words) == (141, "")


def test_a_script_whose_reader_leaves() -> None:
    assert _unread("clean", "--help") == (141, "")


def test_what_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert exit_status(lambda: (tmp_path / "file" / "folder").mkdir()) == 2
    assert capsys.readouterr().err == f"error: Not a directory: {tmp_path / 'file' / 'folder'}\n"
    assert exit_status(lambda: None) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / JOBS).symlink_to("/dev/full")
    assert exit_status(lambda: note_jobs(tmp_path, {tmp_path / "run": "7_0"})) == 2
    assert capsys.readouterr().err.startswith(f"error: cannot write {tmp_path / JOBS}: No space left on device; ")
    assert exit_status(lambda: Path("/dev/full").write_text("words")) == 2  # where the system names no file
    assert capsys.readouterr().err == "error: No space left on device\n"
