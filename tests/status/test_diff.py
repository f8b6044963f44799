"""What differs between two runs."""

import json
import shutil
from pathlib import Path

import pytest

from fedcomp.status.diff import Difference, compare, main
from tests.status.test_clean import _run


def _provenance(folder: Path, digest: str, version: str) -> None:
    session = {
        "start": "2026-01-01", "host": "here", "device": "cpu", "processor": "x", "threads": 1, "processes": 1,
        "versions": {"torch": version}, "commits": [{"folder": "/src/mine", "commit": "0" * 40, "clean": True}],
        "accepted": [],
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
    assert found.origin == [
        Difference("data", "", "train.x has changed"),
        Difference("version of torch", "2.11", "2.12"),
    ]
    assert found.results[:2] == [
        Difference("state", "finished", "failed"),
        Difference("last evaluation, round", "20", "10"),
    ]
    assert found.results[2] == Difference("test/accuracy, round 0", "50.00 %", "75.00 %", "+25.00 points")
    assert (found.same_until, found.equal_records) == (None, False)


def test_who_started_a_run_and_on_how_many_threads_is_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = _run(tmp_path, "grid/aaa", "finished")
    other = tmp_path / "other" / "seed=0"
    shutil.copytree(one, other)
    with (other / "config.yaml").open("a") as file:
        file.write("launcher: {_target_: fedcomp.launcher.slurm.Slurm, cpus: 2}\n")
        file.write("sweeper: {_target_: fedcomp.sweeper.optuna.Optuna, n_trials: 12}\n")
        file.write("threads: 2\n")
    changed = {"launcher": "slurm", "sweeper": "optuna", "threads": "2"}
    assert compare(one, other).settings == [Difference(name, "–", value) for name, value in changed.items()]
    assert main([str(one), str(other)]) == 0


def test_on_the_terminal(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder) for folder in pair]) == 1
    said = capsys.readouterr().out
    assert all(words in said for words in ("client.lr", "train.x has changed", "+25.00 points"))


def test_equal_up_to_a_round(pair: tuple[Path, Path]) -> None:
    one, other = pair
    lines = [json.loads(line) for line in (one / "metrics.jsonl").read_text().splitlines()]
    lines[0]["seconds"], lines[1]["test/accuracy"] = 99.0, 0.9
    (other / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = compare(one, other)
    assert (found.same_until, found.equal_records) == (0, False)
    assert [each.name for each in found.results] == ["state", "test/accuracy, round 20", "seconds, round 20"][:2]


def test_a_copy_is_no_difference(pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(pair[0], copy)
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("name: grid", "name: moved"))
    assert main([str(pair[0]), str(copy)]) == 0
    assert "the records are equal, apart from seconds" in capsys.readouterr().out


def test_without_a_record(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (pair[1] / "metrics.jsonl").unlink()
    (pair[1] / "provenance.json").unlink()
    found = compare(*pair)
    assert Difference("last evaluation, round", "20", "no record") in found.results
    assert found.origin == [Difference("provenance.json", "there", "–")]


def test_wrong_folders(pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(pair[0]), str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "is no run's folder: it has no config.yaml" in said
    assert said.count("\n") == 1
