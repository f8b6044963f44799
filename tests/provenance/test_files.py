"""Fingerprints of files: by content; what is large is read once while size and times stay."""

import os
import time
from pathlib import Path

import pytest

from fedcomp.provenance import files
from fedcomp.provenance.files import fingerprints
from fedcomp.records.provenance import differences


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What was really read, one list a time; everything is worth remembering, in a home of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "LARGE_BYTES", 1)
    monkeypatch.setattr(files, "CLOCK_SECONDS", -1.0)
    seen: list[list[str]] = []
    read = files._read

    def counted(paths, names):
        seen.append(list(names))
        return read(paths, names)

    monkeypatch.setattr(files, "_read", counted)
    return seen


def _write(folder: Path, **content: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (folder / name).write_text(text)
    return [folder / name for name in content]


def test_content_counts_and_place_does_not(tmp_path: Path) -> None:
    first = fingerprints(_write(tmp_path / "one", a="1", b="2"))
    assert first == fingerprints(_write(tmp_path / "other", a="1", b="2"))
    assert list(differences(first, fingerprints(_write(tmp_path / "one", a="1", b="3")))) == ["b has changed"]
    assert list(differences(first, fingerprints(_write(tmp_path / "third", a="1", c="2")))) == ["b is gone", "c is new"]
    assert fingerprints([tmp_path / "nowhere"]) == {}


def test_large_data_are_read_once(tmp_path: Path, reads: list[list[str]]) -> None:
    paths = _write(tmp_path / "data", a="1", b="2")
    first = fingerprints(paths)
    assert fingerprints(paths) == first
    assert len(reads) == 1
    before = os.stat(paths[1])
    paths[1].write_text("3")
    os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time: its inode's time tells
    assert list(differences(first, fingerprints(paths))) == ["b has changed"]
    assert len(reads) == 2


def test_what_was_just_written_is_not_remembered(tmp_path: Path, reads, monkeypatch) -> None:
    """A second write within the clock's tick would go unseen."""
    monkeypatch.setattr(files, "CLOCK_SECONDS", 3600.0)
    paths = _write(tmp_path / "data", a="1")
    fingerprints(paths)
    fingerprints(paths)
    assert len(reads) == 2


@pytest.mark.parametrize("home", ["", "relative", "/dev/null/no", "broken"])
def test_no_home_is_no_hindrance(tmp_path: Path, reads, monkeypatch, home: str) -> None:
    paths = _write(tmp_path / "data", a="1")
    if home == "broken":
        first = fingerprints(paths)
        (store,) = (tmp_path / "cache").rglob("*.json")
        store.write_text("{")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        first = fingerprints(paths)
    assert fingerprints(paths) == first
    assert len(reads) == 2


def test_many_files_are_named_by_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 3)
    paths = [*_write(tmp_path / "data" / "cat", a="1", b="2"), *_write(tmp_path / "data" / "dog", a="3", b="4")]
    first = fingerprints(paths)
    assert {name: (part.files, part.bytes) for name, part in first.items()} == {"cat": (2, 2), "dog": (2, 2)}
    more = fingerprints([*paths, *_write(tmp_path / "data" / "dog", c="5")])
    assert list(differences(first, more)) == ["dog has 3 files instead of 2"]
    _write(tmp_path / "data" / "cat", a="9")
    assert "cat has changed" in differences(first, fingerprints(paths))


def test_small_data_leave_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = _write(tmp_path / "data", a="1")
    os.utime(paths[0], (time.time() - 3600,) * 2)
    fingerprints(paths)
    assert not (tmp_path / "cache").exists()
