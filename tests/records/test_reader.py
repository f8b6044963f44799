"""What is logged comes back, a kill costs at most the line being written; runs are read whatever became of them."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from fedcomp.records import run_folder
from fedcomp.records.metrics_file import REPETITIONS, Record, read_lines, read_repetitions
from fedcomp.records.reader import RunFiles, find_runs, read_run, read_runs
from fedcomp.records.run_folder import LOCK, owned
from fedcomp.records.status import Status, write_status
from tests.looped import looped
from tests.records.synthetic_runs import MakeRun
from tests.refused import one_line_error


def test_lines_come_back_exactly(tmp_path: Path) -> None:
    record = Record(tmp_path / "outputs" / "run")
    first = {"round": 0, "test/loss": 0.1 + 0.2, "bits/total": 2**53 + 1}
    second = {"round": 5, "test/loss": np.float32(0.5), "bits/total": np.int64(7)}
    record.append(first)
    record.append(second)
    lines = read_lines(record.path)
    assert lines == [first, {"round": 5, "test/loss": 0.5, "bits/total": 7}]
    assert isinstance(lines[0]["bits/total"], int)


def test_the_file_is_valid_json_and_says_what_was_not_finite(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.append({"round": 1, "test/loss": math.nan, "train/loss": math.inf, "x": -math.inf})
    raw = json.loads(record.path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert raw["test/loss"] is None
    assert raw["nonfinite"] == {"test/loss": "nan", "train/loss": "inf", "x": "-inf"}
    (line,) = read_lines(record.path)
    assert math.isnan(line["test/loss"])
    assert (line["train/loss"], line["x"]) == (math.inf, -math.inf)
    assert sorted(line) == ["round", "test/loss", "train/loss", "x"]


def test_a_half_written_last_line_is_not_read_and_not_continued(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.append({"round": 0})
    with record.path.open("a") as file:
        file.write('{"round": 1, "test/acc')
    assert read_lines(record.path) == [{"round": 0}]
    Record(tmp_path).append({"round": 1})
    assert record.path.read_text() == '{"round": 0}\n{"round": 1}\n'


@pytest.mark.parametrize(("round", "kept"), [(-1, []), (0, [0]), (7, [0, 5]), (10, [0, 5, 10]), (99, [0, 5, 10])])
def test_truncate_after_the_checkpoint(tmp_path: Path, round: int, kept: list[int]) -> None:
    record = Record(tmp_path)
    for number in (0, 5, 10):
        record.append({"round": number, "test/loss": math.nan})
    with record.path.open("a") as file:
        file.write('{"round": 15')
    record.truncate_after(round)
    assert [line["round"] for line in read_lines(record.path)] == kept
    record.append({"round": 100})
    lines = read_lines(record.path)
    assert [line["round"] for line in lines] == [*kept, 100]
    assert all(math.isnan(line["test/loss"]) for line in lines[:-1])
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_values_of_repetitions_come_back_by_round(tmp_path: Path) -> None:
    record = Record(tmp_path, REPETITIONS)
    for number in (0, 1):
        record.append({"round": number, "test/loss": [1.0, float(number)], "x": [math.nan]})
    assert all(json.loads(line)["x"] == [None] for line in record.path.read_text().splitlines())
    found = read_repetitions(tmp_path)
    assert (list(found), found[1]["test/loss"]) == ([0, 1], [1, 1])
    assert math.isnan(found[1]["x"][0])


@looped(
    "second, said",
    [
        ("rubbish", "is no record"),
        ('{"rounds": 7}', "is no record"),
        ('{"round": 7, "test/loss": null}', "is no record"),
        ('{"round": 7, "test/loss": "0.5"}', "is no record"),
        ('{"round": 7, "test/loss": [0.5]}', "is no record"),
        ("[7]", "is no record"),
        ('{"round": 5}', "is of round 5, after a line of round 5"),
        ('{"round": 2}', "is of round 2, after a line of round 5"),
    ],
)
def test_a_line_that_cannot_be_is_named(tmp_path: Path, second: str, said: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"round": 0}}\n{{"round": 5}}\n{second}\n{{"round": 10}}\n')
    with pytest.raises(ValueError, match=rf"metrics\.jsonl, line 3 {said}"):
        read_lines(path)


def test_a_file_that_others_touch_is_not_written_on(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.append({"round": 0})
    record.path.write_text('{"round": 0}\n{"round": 1}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl was changed by another process while the run was running"):
        record.append({"round": 1})
    record.path.unlink()
    with pytest.raises(ValueError, match=r"metrics\.jsonl was deleted while .*start anew with overwrite=true"):
        record.append({"round": 1})
    assert not record.path.exists()


def test_unreadable_file_and_unwritable_folder_are_one_line(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "metrics.jsonl") == []
    with pytest.raises(ValueError, match="cannot read"):
        read_lines(tmp_path)
    (tmp_path / "file").write_text("")
    with one_line_error("choose another output folder"):
        Record(tmp_path / "file" / "run")


def test_every_run_is_found_once_with_its_state(make_run: MakeRun, tmp_path: Path) -> None:
    done = make_run("sign", 0, [0.1, 0.5])
    make_run("sign", 1, [0.1], state="interrupted")
    make_run("topk", 0, [], state="failed", error="ValueError: lr is 0")
    killed = make_run("topk", 1, [0.1, 0.2], state="running")
    (killed / "status.json").unlink()
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"round": 20, "te')
    (make_run("randk", 7, [0.1]) / "config.yaml").write_text("a: [")
    runs = read_runs([tmp_path, done, done / ".." / "seed=0"])
    found = {(run.folder.parent.name, run.seed): run for run in runs}
    assert len(runs) == len(found) == 5
    assert {key: run.state for key, run in found.items()} == {
        ("randk", 7): "unreadable",
        ("sign", 0): "finished",
        ("sign", 1): "interrupted",
        ("topk", 0): "failed",
        ("topk", 1): "running",
    }
    assert found["topk", 0].error == "ValueError: lr is 0"
    assert "\n" not in str(found["randk", 7].error)
    assert [line["round"] for line in found["topk", 1].lines] == [0, 10]
    assert [run.folder for run in runs if run.finished] == [done]


def test_each_file_of_a_run_alone(make_run: MakeRun) -> None:
    folder = make_run("topk", 3, [0.1, 0.9, 0.4], config={"client": {"_target_": "fedcomp.client.sgd.Sgd"}})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 30, "test/accuracy": 0.95, "te')
    (folder / "repetitions.jsonl").write_text('{"round": 0, "test/loss": [1.5, null]}\n{"rou')
    files = RunFiles(folder)
    assert (files.seed, files.begun, files.held) == (3, True, False)
    config, status = files.config(), files.status()
    assert config["client"] == {"_target_": "fedcomp.sgd.Sgd"}, "the room of a class differs between versions"
    assert (status.state, status.round) == ("finished", 20)
    assert [line["test/accuracy"] for line in files.lines()] == [0.1, 0.9, 0.4]
    last, best = files.latest()
    assert last == files.lines()[-1]
    assert best == 0.9, "not of the line that is being written"
    assert list(files.repetitions()) == [0]
    assert files.provenance() is None


@looped("key, value", [("rounds", None), ("eval_every", "x"), ("seed", [1]), ("rounds", True), ("dataset", [1])])
def test_the_config_of_another_program_is_no_runs(make_run: MakeRun, tmp_path: Path, key: str, value: object) -> None:
    make_run("topk", 3, [0.1, 0.9], config={key: value}, folder=f"{key}{value}")
    (run,) = read_runs([tmp_path / "outputs" / "demo" / f"{key}{value}"])
    assert run.state == "unreadable"
    kind = "mapping" if key == "dataset" else "whole number"
    assert f"is no config of a run: {key} is {value!r}, but must be a {kind}" in str(run.error)


def test_a_status_from_elsewhere_names_no_other_file(make_run: MakeRun) -> None:
    files = RunFiles(make_run("topk", 0, [0.1, 0.9], config={"eval_every": 10}))
    for name in (str(Path(__file__)), "../seed=1/metrics.jsonl", "config.yaml"):
        write_status(files.folder, Status("finished", 10, record={name: "dc"}))
        assert f"has a checksum of {name!r}, which is no file of a record" in str(read_run(files).error)


def test_a_record_lacks_more_lines_than_memory_holds(make_run: MakeRun) -> None:
    files = RunFiles(make_run("topk", 0, [0.1, 0.9], config={"eval_every": 10}))
    write_status(files.folder, Status("finished", 2**60))
    assert "has no line of round 20 and 115292150460684695 more" in str(read_run(files).error)


def test_a_lock_that_is_a_link_empties_no_other_file(tmp_path: Path) -> None:
    mine = tmp_path / "thesis.txt"
    mine.write_text("three years")
    folder = tmp_path / "seed=0"
    folder.mkdir()
    (folder / LOCK).symlink_to(mine)
    with one_line_error("Too many levels of symbolic links"), owned(folder):
        pass
    assert mine.read_text() == "three years"


def test_who_holds_a_folder_is_named_where_linux_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with owned(tmp_path):
        found, locks = (tmp_path / LOCK).stat(), tmp_path / "locks"
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        locks.write_text(f"1: FLOCK  ADVISORY  WRITE 11 {place}1 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 {place} 0 EOF\n")
        for known, who in (
            (locks, "process 4711: wait for it, `kill 4711`"),
            (tmp_path / "no", "another process: wait"),
        ):
            monkeypatch.setattr(run_folder, "LOCKS", known)
            with one_line_error(f"is being written by {who}"), owned(tmp_path):
                pass


def test_what_is_not_there_yet(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "any")
    assert (files.seed, files.begun, files.held) == (None, False, False)
    assert (files.config(), files.status(), files.provenance()) == (None, None, None)
    assert (files.lines(), files.latest(), files.repetitions()) == ([], ({}, None), {})
    assert files.finished(_config(10, 1)) is None
    run = read_run(files)
    assert run.state == "unreadable"
    assert str(run.error).startswith("cannot read")


def _config(rounds: int, eval_every: int, repeats: int = 1) -> dict[str, int]:
    return {"rounds": rounds, "eval_every": eval_every, "repeats": repeats}


def test_finished_means_every_line(make_run: MakeRun) -> None:
    files = RunFiles(make_run("topk", 0, [0.1, 0.9, 0.4]))
    found = files.finished(_config(20, 10))
    assert found is not None
    assert [line["round"] for line in found] == [0, 10, 20]
    assert files.finished(_config(30, 10)) is None, "of 30 rounds it has done 20"
    with pytest.raises(ValueError, match=r"metrics.jsonl has no line of round 5 and 1 more"):
        files.finished(_config(20, 5))
    with pytest.raises(ValueError, match=r"repetitions.jsonl has no line of round 0 and 2 more"):
        files.finished(_config(20, 10, repeats=2))
    record = files.folder / "metrics.jsonl"
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(ValueError, match=r"has no line of its last round 20"):
        files.finished(_config(20, 10))
    copied = RunFiles(files.folder.rename(files.folder.with_name("seed=7")))
    for rounds in (20, 30):  # nor is one of 30 rounds gone on with
        with pytest.raises(ValueError, match=r"seed=7 is a copy of the run of seed 0"):
            copied.finished(_config(rounds, 10))


def test_logs_of_a_grid_and_hidden_folders_are_no_runs(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("topk", 0, [0.1])
    grid, hidden = tmp_path / "outputs" / "demo" / "grids" / "now", tmp_path / "outputs" / ".trash"
    for folder in (grid / "slurm" / "7_0", hidden):
        folder.mkdir(parents=True)
        (folder / "status.json").write_text(json.dumps({"state": "finished", "round": 1}))
    (grid / "runs.jsonl").write_text("")
    found = find_runs([tmp_path])
    assert [files.folder for files in found.runs.values()] == [run]
    assert found.grids == [grid]
