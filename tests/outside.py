"""Folders outside of the repository, with files of a user's own; what is imported from them is forgotten."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Write these below the folder, {"compressor/own.yaml": text}. Returns the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to run in; what is imported from it is forgotten."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
