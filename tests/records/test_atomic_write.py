"""Replaced files, of which a run's status is one: whole or absent, content and then name on disk."""

import os
import stat
from pathlib import Path

import pytest

from fedcomp.records.atomic_write import atomic_path, write_atomically
from fedcomp.records.run_folder import owned
from fedcomp.records.status import Status, read_status, write_status
from tests.raising import raising


def test_the_file_is_synced_before_its_renaming_and_the_folder_after(tmp_path: Path, monkeypatch) -> None:
    events = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def noted_replace(old: Path, new: Path) -> None:
        events.append("renaming")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_atomically(tmp_path / "status.json", b"{}")
    assert events == ["file", "renaming", "folder"]


def test_a_disk_that_fails_to_keep_the_content_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "status.json"
    write_atomically(path, b"old")

    monkeypatch.setattr(os, "fsync", raising(OSError(5, "Input/output error")))
    with pytest.raises(ValueError, match="cannot write .*: Input/output error"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [left.name for left in tmp_path.iterdir()] == ["status.json"]


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.pt.77.tmp").write_bytes(b"half")
    with owned(tmp_path):
        assert not (tmp_path / ".checkpoint.pt.77.tmp").exists()


def test_status_comes_back(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    for status in (Status("running", 3), Status("failed", 4, "ValueError: lr is 0")):
        write_status(tmp_path, status)
        assert read_status(tmp_path) == status
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_write_that_dies_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    write_status(tmp_path, Status("running", 3))

    monkeypatch.setattr(os, "replace", raising(OSError(28, "No space left on device")))
    with pytest.raises(ValueError, match="No space left on device"):
        write_status(tmp_path, Status("finished", 9))
    assert read_status(tmp_path) == Status("running", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_an_interrupt_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def interrupted_write() -> None:
        with atomic_path(path) as temporary:
            temporary.write_bytes(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_write()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["", "[]", '{"state": "running"}', '{"state": "asleep", "round": 1}'])
def test_what_is_no_status_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "status.json").write_text(content)
    with pytest.raises(ValueError, match=r"status\.json"):
        read_status(tmp_path)


def test_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write"):
        write_status(tmp_path / "file", Status("running", 0))
