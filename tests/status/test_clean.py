"""Which runs may be removed, that nothing goes without a yes, and that nothing else ever goes."""

import io
import os
import shutil
import sys
from pathlib import Path

import pytest

from fedcomp.records.run_folder import owned
from fedcomp.status.clean import candidates, main
from tests.records.synthetic_runs import write_run


def _run(root: Path, folder: str, state: str, seed: int = 0, lr: float = 0.1, accuracy: float = 0.5) -> Path:
    """A run of 20 rounds with the settings `client.lr`; `folder` is `<name>/<hash>`."""
    place = root / folder / f"seed={seed}"
    client = {"_target_": "fedcomp.client.sgd.Sgd", "lr": lr}
    config = {"name": folder.split("/")[0], "seed": seed, "rounds": 20, "client": client, "device": "cpu"}
    done = 20 if state == "finished" else 10
    error = "the loss is nan" if state == "failed" else None
    lines = [{"round": round, "test/accuracy": accuracy, "seconds": seed + len(folder)} for round in (0, done)]
    write_run(place, config, state, done, lines, error)
    (place.parent / "identity.json").write_text("{}")
    return place


def _found(root: Path) -> dict[str, str]:
    return {str(one.folder.relative_to(root)): one.kind for one in candidates(root)}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    _run(tmp_path, "grid/aaa", "finished")
    _run(tmp_path, "grid/aaa", "failed", seed=1)
    _run(tmp_path, "grid/bbb", "interrupted", lr=0.2)
    _run(tmp_path, "grid/ccc", "finished", seed=2, lr=0.3)
    _run(tmp_path, "grid/ddd", "finished", seed=2, lr=0.3, accuracy=0.6)  # the same settings on another machine
    _run(tmp_path, "old/ccc", "interrupted", seed=2, lr=0.3)
    os.utime(_run(tmp_path, "old/aaa", "finished") / "config.yaml", (0, 0))
    return tmp_path


def test_kinds(runs: Path) -> None:
    assert _found(runs) == {
        "grid/aaa/seed=1": "failed",
        "old/aaa/seed=0": "duplicate",  # of grid/aaa, which is newer
        "old/ccc/seed=2": "superseded",
    }


def test_one_of_several_equal_runs_stays(runs: Path) -> None:
    shutil.copytree(runs / "grid" / "aaa", runs / "copy" / "aaa", dirs_exist_ok=True)
    found = _found(runs)
    assert "grid/aaa/seed=0" not in found
    assert [found[f"{name}/aaa/seed=0"] for name in ("old", "copy")] == ["duplicate"] * 2  # copy: not where it was made


def test_what_is_worked_on_stays(runs: Path) -> None:
    with owned(runs / "grid" / "aaa" / "seed=1"), owned(runs / "old" / "ccc" / "seed=2"):
        assert set(_found(runs).values()) == {"duplicate"}


def test_damaged_files_are_no_reason(runs: Path) -> None:
    (runs / "grid" / "aaa" / "seed=1" / "status.json").write_text("{")
    (runs / "old" / "ccc" / "seed=2" / "config.yaml").write_text("a: [")
    assert set(_found(runs).values()) == {"duplicate"}


@pytest.fixture
def files(runs: Path) -> dict[Path, bytes]:
    return _left(runs)


def _left(runs: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}


def test_a_list_removes_nothing(runs: Path, files: dict[Path, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(runs), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "failed: " in said
    assert "the loss is nan" in said
    assert said.endswith("; nothing was removed\n")
    assert _left(runs) == files


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_anything_but_yes_on_a_terminal_is_no(
    runs: Path, files: dict[Path, bytes], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in ("", "n", "no", "yesterday"):
        monkeypatch.setattr(sys, "stdin", _Terminal(f"{answer}\n"))
        assert main([str(runs)]) == 1, answer
        assert _left(runs) == files
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main([str(runs)]) == 2
    assert "no terminal to ask on: give --yes to remove them, or --dry-run" in capsys.readouterr().err
    assert _left(runs) == files


def test_a_yes_removes_what_was_listed(
    runs: Path, files: dict[Path, bytes], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [one.folder for one in candidates(runs)]
    monkeypatch.setattr(sys, "stdin", _Terminal("y\n"))
    assert main([str(runs)]) == 0
    assert f"removed {len(listed)} of {len(listed)} runs" in capsys.readouterr().out
    gone = {path for path in files if any(folder in path.parents for folder in listed)}
    configs = {path for path in files if path.name == "identity.json" and not any(path.parent.glob("seed=*"))}
    assert _left(runs) == {path: content for path, content in files.items() if path not in gone | configs}
    assert not (runs / "old" / "ccc").exists(), "no seed is left of this config"
    assert (runs / "grid" / "aaa" / "seed=0").exists()


def test_only_some(runs: Path) -> None:
    assert main([str(runs), "--only", "failed", "--yes"]) == 0
    assert not (runs / "grid" / "aaa" / "seed=1").exists()
    assert set(_found(runs).values()) == {"duplicate", "superseded"}


def test_nothing_to_do_and_wrong_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(tmp_path, "grid/aaa", "finished")
    assert main([str(tmp_path)]) == 0
    assert "nothing to remove" in capsys.readouterr().out
    for words, line in (
        ([str(tmp_path / "nowhere")], "is no folder"),
        ([str(tmp_path), "--yes", "--dry-run"], "exclude each other"),
    ):
        assert main(words) == 2
        assert line in capsys.readouterr().err
