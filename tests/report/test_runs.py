"""Finding runs: all of them, whatever became of them."""

from pathlib import Path

import pytest

from fedcomp.records.reader import read_runs
from tests.report.conftest import MakeRun


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


def test_nothing_found_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run found under"):
        read_runs([tmp_path])
    with pytest.raises(ValueError, match="is no folder"):
        read_runs([tmp_path / "nowhere"])
