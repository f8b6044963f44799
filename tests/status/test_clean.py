"""Which runs may be removed, that nothing else ever goes nor without a yes; and what differs between two runs."""

import io
import json
import math
import os
import shutil
import sys
from pathlib import Path

import pytest

from fedcomp.records.run_folder import owned
from fedcomp.status import clean, diff
from fedcomp.status.clean import candidates
from fedcomp.status.diff import Difference, _change, compare
from tests.looped import looped
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
    os.utime(_run(tmp_path, "old/aaa", "finished") / "status.json", (0, 0))
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
    shutil.copytree(runs / "grid" / "aaa" / "seed=0", runs / "grid" / "aaa" / "seed=4")
    (runs / "grid" / "aaa" / "seed=4" / "config.yaml").unlink()  # that of seed 0 stands for it
    assert set(_found(runs).values()) == {"duplicate"}


def _left(runs: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}


def test_a_list_removes_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = _left(runs)
    assert clean.main([str(runs), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "failed: " in said
    assert "the loss is nan" in said
    assert said.endswith("; nothing was removed\n")
    assert _left(runs) == files


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_anything_but_yes_on_a_terminal_is_no(runs: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _left(runs)
    for answer in ("", "\n", "n\n", "no\n", "yesterday\n"):  # the first is Ctrl-D
        monkeypatch.setattr(sys, "stdin", _Terminal(answer))
        assert clean.main([str(runs)]) == 1, answer
        assert _left(runs) == files
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert clean.main([str(runs)]) == 2
    assert "no terminal to ask on: give --yes to remove them, or --dry-run" in capsys.readouterr().err
    assert _left(runs) == files


def test_a_yes_removes_what_was_listed(runs: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    files, listed = _left(runs), [one.folder for one in candidates(runs)]
    monkeypatch.setattr(sys, "stdin", _Terminal("y\n"))
    assert clean.main([str(runs)]) == 0
    assert f"removed {len(listed)} of {len(listed)} runs" in capsys.readouterr().out
    gone = {path for path in files if any(folder in path.parents for folder in listed)}
    configs = {path for path in files if path.name == "identity.json" and not any(path.parent.glob("seed=*"))}
    assert _left(runs) == {path: content for path, content in files.items() if path not in gone | configs}
    assert not (runs / "old" / "ccc").exists(), "no seed is left of this config"
    assert (runs / "grid" / "aaa" / "seed=0").exists()


def test_only_some(runs: Path) -> None:
    again = _run(runs, "old/ddd", "failed", seed=2, lr=0.3)  # also finished elsewhere
    assert clean.main([str(runs), "--only", "failed", "--yes"]) == 0
    assert not (runs / "grid" / "aaa" / "seed=1").exists()
    assert not again.exists()
    assert set(_found(runs).values()) == {"duplicate", "superseded"}


def test_nothing_to_do_and_wrong_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(tmp_path, "grid/aaa", "finished")
    assert clean.main([str(tmp_path)]) == 0
    assert "nothing to remove" in capsys.readouterr().out
    for words, line in (
        ([str(tmp_path / "nowhere")], "is no folder"),
        ([str(tmp_path), "--yes", "--dry-run"], "exclude each other"),
    ):
        assert clean.main(words) == 2
        assert line in capsys.readouterr().err


def _provenance(folder: Path, digest: str, version: str) -> None:
    session = {
        "start": "2026-01-01", "host": "here", "device": "cpu", "processor": "x", "threads": 1, "processes": 1,
        "versions": {"torch": version}, "accepted": [], "of_a_later_version": 1,
        "commits": [{"folder": "/src/mine", "commit": "0" * 40, "clean": version == "2.11"}],
    }  # fmt: skip
    data = {"train.x": {"digest": digest, "files": 1, "bytes": 9}}
    (folder / "provenance.json").write_text(json.dumps({"data": data, "code": {}, "sessions": [session], "since": 0}))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    one = _run(tmp_path, "grid/aaa", "finished")
    other = _run(tmp_path, "grid/bbb", "failed", seed=3, lr=0.25, accuracy=0.75)
    _provenance(one, "ab", "2.11")
    _provenance(other, "cd", "2.12")
    return one, other


def test_every_difference(pair: tuple[Path, Path]) -> None:
    found = compare(*pair)
    assert found.settings == [Difference("seed", "0", "3"), Difference("client.lr", "0.1", "0.25")]
    data, torch = Difference("data", "", "train.x has changed"), Difference("version of torch", "2.11", "2.12")
    commit = Difference("commit of mine", "0" * 12, f"{'0' * 12} and changes")
    assert found.origin == [data, torch, commit]
    state, last = Difference("state", "finished", "failed"), Difference("last evaluation, round", "20", "10")
    accuracy = Difference("test/accuracy, round 0", "50.00 %", "75.00 %", "+25.00 points")
    seconds = Difference("seconds, round 0", "8.00 s", "11.0 s", "× 1.375")
    assert found.results == [state, last, accuracy, seconds]
    assert (found.same_until, found.equal_records) == (None, False)


def test_who_started_a_run_and_on_how_many_threads_is_no_difference(tmp_path: Path) -> None:
    one = _run(tmp_path, "grid/aaa", "finished")
    other = shutil.copytree(one, tmp_path / "other" / "seed=0")
    with (other / "config.yaml").open("a") as file:
        file.write("launcher: {_target_: fedcomp.launcher.slurm.Slurm, cpus: 2}\n")
        file.write("sweeper: {_target_: fedcomp.sweeper.optuna.Optuna, n_trials: 12}\n")
        file.write("threads: 2\ntracker: {project: mine, code: true}\n")
    tracker = {"tracker.project": "mine", "tracker.code": "true"}
    changed = {"launcher": "slurm", "sweeper": "optuna", "threads": "2"} | tracker
    assert compare(one, other).settings == [Difference(name, "–", value) for name, value in changed.items()]
    assert diff.main([str(one), str(other)]) == 0
    (other / "metrics.jsonl").write_text("")
    assert diff.main([str(one), str(other)]) == 1


def test_on_the_terminal(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert diff.main([str(folder) for folder in pair]) == 1
    said = capsys.readouterr().out
    assert all(words in said for words in ("client.lr", "train.x has changed", "+25.00 points"))
    assert said.count("from 1 to 2") == 1, "above results alone"
    assert "the records are equal" not in said


def test_equal_up_to_a_round(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    one, other = pair
    lines = [json.loads(line) for line in (one / "metrics.jsonl").read_text().splitlines()]
    lines[0]["seconds"], lines[1]["test/accuracy"] = 99.0, 0.9
    (other / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = compare(one, other)
    assert (found.same_until, found.equal_records) == (0, False)
    assert [each.name for each in found.results] == ["state", "test/accuracy, round 20"]
    assert diff.main([str(one), str(other)]) == 1
    assert "the records are equal up to round 0, apart from seconds" in capsys.readouterr().out


@looped(
    "name, one, other, change",
    [
        ("bits/total", 2000.0, 500.0, "× 0.25"),
        ("test/loss", 0.0, 0.5, "+0.5"),
        ("test/loss", 0.5, -0.25, "-0.75"),
        ("test/loss", 0.5, 0.0, "-0.5"),
        ("test/accuracy", 0.5, 0.25, "-25.00 points"),
        ("test/loss", 0.5, None, ""),
    ],
)
def test_a_change_is_a_factor_where_signs_agree(name: str, one: float, other: float | None, change: str) -> None:
    assert _change(name, one, other) == change


def test_a_copy_is_no_difference(pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(pair[0], tmp_path / "elsewhere")
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("name: grid", "name: moved"))
    assert diff.main([str(pair[0]), str(copy)]) == 0
    assert "the records are equal, apart from seconds" in capsys.readouterr().out


def test_records_with_nan_may_be_equal(tmp_path: Path) -> None:
    one = _run(tmp_path, "grid/aaa", "finished", accuracy=math.nan)
    other = _run(tmp_path, "again/aa", "finished", accuracy=math.nan)
    assert diff.main([str(one), str(other)]) == 0
    assert compare(one, other).results == []
    assert list(_found(tmp_path).values()) == ["duplicate"]


def test_without_a_record(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (pair[1] / "metrics.jsonl").unlink()
    (pair[1] / "provenance.json").unlink()
    found = compare(*pair)
    assert Difference("last evaluation, round", "20", "no record") in found.results
    assert found.origin == [Difference("provenance.json", "there", "–")]


def test_wrong_folders(pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff.main([str(pair[0]), str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is no run's folder: it has no config.yaml" in line
