"""Reading runs: all of them, whatever became of them, and each file alone."""

import json
from pathlib import Path

import pytest

from fedcomp.records.reader import RunFiles, find_runs, read_run, read_runs
from tests.records.synthetic_runs import MakeRun


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
    assert config is not None
    assert config["client"] == {"_target_": "fedcomp.sgd.Sgd"}, "the room of a class differs between versions"
    assert status is not None
    assert (status.state, status.round) == ("finished", 20)
    assert [line["test/accuracy"] for line in files.lines()] == [0.1, 0.9, 0.4]
    last, best = files.latest()
    assert last == files.lines()[-1]
    assert best == 0.95, "also of a line that is being written"
    assert list(files.repetitions()) == [0]
    assert files.provenance() is None


def test_what_is_not_there_yet(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "any")
    assert (files.seed, files.begun, files.held) == (None, False, False)
    assert (files.config(), files.status(), files.provenance()) == (None, None, None)
    assert (files.lines(), files.latest(), files.repetitions()) == ([], ({}, None), {})
    assert files.finished(10, 1) is None
    run = read_run(files)
    assert run.state == "unreadable"
    assert str(run.error).startswith("cannot read")


def test_finished_means_every_line(make_run: MakeRun) -> None:
    files = RunFiles(make_run("topk", 0, [0.1, 0.9, 0.4]))
    found = files.finished(20, 10)
    assert found is not None
    assert [line["round"] for line in found] == [0, 10, 20]
    assert files.finished(30, 10) is None, "of 30 rounds it has done 20"
    with pytest.raises(ValueError, match=r"metrics.jsonl has no line of round 5 and 1 more"):
        files.finished(20, 5)
    with pytest.raises(ValueError, match=r"repetitions.jsonl has no line of round 0 and 2 more"):
        files.finished(20, 10, repeats=2)
    record = files.folder / "metrics.jsonl"
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(ValueError, match=r"has no line of its last round 20"):
        files.finished(20, 10)


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
