"""`fedcomp-report --wandb`: the same tables from W&B's files as from the runs' own, and what goes back to W&B."""

import csv
import os
from pathlib import Path

import pytest

from fedcomp.records.metrics_file import read_lines
from fedcomp.reporting import build
from fedcomp.reporting.__main__ import main
from fedcomp.tracking import wandb_workspace
from fedcomp.tracking.wandb_files import read_pieces, recorded_runs
from tests.interrupted import power_cut
from tests.tracking.wandb_pieces import pieces

pytestmark = pytest.mark.usefixtures("without_account")
QUICK = ("tracker=wandb", "tracker.project=bits", "num_clients=5", "client.batch_size=40", "checkpoint_every=2")


@pytest.fixture
def outputs(fedcomp, tmp_path: Path) -> Path:
    """Two seeds of sign, the second in two pieces, and one of topk."""
    root = f"output_root={tmp_path / 'outputs'}"
    assert fedcomp(*QUICK, "rounds=4", "compressor=sign", root) == 0
    with power_cut(3):
        fedcomp(*QUICK, "rounds=4", "compressor=sign", "seed=1", root)
    assert fedcomp(*QUICK, "rounds=4", "compressor=sign", "seed=1", root) == 0
    assert fedcomp(*QUICK, "rounds=4", "compressor=topk", root) == 0
    assert len(pieces(tmp_path / "outputs")) == 4
    return tmp_path / "outputs"


def _table(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.thorough
def test_reports_from_wandbs_files_are_those_of_the_runs(outputs: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    """And the report goes back to W&B, if it can."""
    monkeypatch.setattr(build, "draw_all", lambda *_: None)
    runs = recorded_runs(read_pieces([outputs]))
    assert [(run.seed, run.state) for run in runs] == [(0, "finished"), (1, "finished"), (0, "finished")]
    for run in runs:
        own = run.folder.parents[1]
        assert run.lines == read_lines(own / "metrics.jsonl")
    (outputs / "run-1").mkdir()
    (outputs / "run-1" / "run-1.wandb").write_bytes(bytes(100))
    capsys.readouterr()
    assert main([str(outputs), "--out", str(tmp_path / "own")]) == 0
    assert main([str(outputs), "--out", str(tmp_path / "theirs"), "--wandb"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Not written to W&B: WANDB_API_KEY is not set" in shown
    assert f"{outputs / 'run-1'}: unreadable, W&B cannot read it: " in shown
    assert _table(tmp_path / "own") == _table(tmp_path / "theirs")
    assert [row["seeds"] for row in _table(tmp_path / "theirs")] == ["2", "1"]

    monkeypatch.setenv("WANDB_ENTITY", "somebody")
    sent = []
    monkeypatch.setattr(wandb_workspace, "publish", lambda *given: sent.append(given) or ["https://one", "https://two"])
    assert main([str(outputs), "--out", str(tmp_path / "report"), "--wandb"]) == 0
    assert "At W&B: https://one, https://two" in capsys.readouterr().out
    ((entity, project, title, table),) = sent
    assert (entity, project, title) == ("somebody", "bits", "outputs")
    assert "| sign |" in table


def test_what_is_missing_is_one_line(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([str(tmp_path), "--wandb"]) == 2
    assert "no run of W&B found under" in capsys.readouterr().err
    assert main([str(tmp_path / "none"), "--wandb"]) == 2
    assert "is no folder" in capsys.readouterr().err
    broken = tmp_path / "offline-run-1" / "run-1.wandb"
    broken.parent.mkdir()
    broken.write_bytes(os.urandom(100))
    (broken.parent / "wandb.py").write_text("open('ran', 'w')")  # a folder that somebody gave us
    empty = [tmp_path / f"offline-run-{number}" / f"run-{number}.wandb" for number in (2, 3)]
    for path in empty:
        path.parent.mkdir()
        path.touch()
    assert main([str(tmp_path), "--wandb"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{broken.parent}: unreadable, W&B cannot read it: " in shown
    assert all(f"{path.parent}: running, or killed" in shown for path in empty)
    assert not (broken.parent / "ran").exists()
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    with pytest.raises(ValueError, match="WANDB_ENTITY is not set"):
        wandb_workspace.publish("", "bits", "title", "table")


def test_the_view_groups_methods_over_bits() -> None:
    pytest.importorskip("wandb_workspaces", reason="no wandb-workspaces here: pip install 'fedcomp[wandb]'")
    spec = wandb_workspace.workspace("somebody", "bits")._to_model().spec.model_dump_json(by_alias=True)
    bits = ("bits/total", "bits/uplink", "bits/downlink", "vs_uplink/accuracy")
    for word in (*bits, "stddev", "method", "max_accuracy"):
        assert word in spec
