"""Replaced files: content, then name, are on disk before the caller goes on."""

import os
import stat
from pathlib import Path

import pytest

from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.run_folder import owned


def test_the_file_is_synced_before_its_renaming_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_disk_that_fails_to_keep_the_content_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "status.json"
    write_atomically(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ValueError, match="cannot write .*: Input/output error"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [left.name for left in tmp_path.iterdir()] == ["status.json"]


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.pt.77.tmp").write_bytes(b"half")
    with owned(tmp_path):
        assert not (tmp_path / ".checkpoint.pt.77.tmp").exists()
