"""Folders are named by what was chosen; runs of earlier versions are found; choices of one hash are kept apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fedcomp.config import placement
from fedcomp.config.placement import IDENTITY, run_folder
from fedcomp.records.metrics_file import read_lines
from fedcomp.records.run_folder import owned
from fedcomp.records.status import Status, write_status

QUICK = ("rounds=2", "num_clients=4", "pictures=false", "compressor=topk", "compressor.feedback=error")


@pytest.fixture
def former(fedcomp, tmp_path) -> Path:
    """A finished run as an earlier version left it: eight digits, other class paths, no identity beside it."""
    assert fedcomp(*QUICK) == 0
    (config,) = tmp_path.rglob("config.yaml")
    folder = config.parent
    config.write_text(
        config.read_text().replace("defaults_version: 1\n", "").replace("fedcomp.compressor.", "fedcomp.old.")
    )
    content = torch.load(folder / "checkpoint.pt", weights_only=True) | {"format": 1, "config_hash": "0123abcd"}
    torch.save(content, folder / "checkpoint.pt")
    place = folder.parent.with_name("0123abcd")
    folder.parent.rename(place)
    (place / IDENTITY).unlink()
    return place / folder.name


def _hashed(tmp_path: Path) -> set[str]:
    return {path.parent.parent.name for path in tmp_path.rglob("config.yaml")}


def test_the_folder_says_what_its_hash_stands_for(fedcomp, tmp_path) -> None:
    assert fedcomp(*QUICK) == 0
    (path,) = tmp_path.rglob(IDENTITY)
    assert json.loads(path.read_text())["compressor"] == {"topk": {"feedback": "error"}}
    assert len(path.parent.name) == 10


def test_a_finished_run_of_an_earlier_version_is_found_and_renamed(fedcomp, former, tmp_path, capsys) -> None:
    lines = read_lines(former / "metrics.jsonl")
    capsys.readouterr()
    assert fedcomp(*QUICK) == 0
    shown = capsys.readouterr().err
    assert f"this run was in {former}: renamed to " in shown
    assert "already finished" in shown
    (record,) = tmp_path.rglob("metrics.jsonl")
    assert len(record.parent.parent.name) == 10
    assert read_lines(record) == lines
    assert not former.parent.exists()


def test_an_unfinished_one_goes_on_from_its_checkpoint(fedcomp, former, tmp_path, capsys) -> None:
    write_status(former, Status("interrupted", 2))
    capsys.readouterr()
    assert fedcomp(*QUICK) == 0
    assert "resuming after round 2" in capsys.readouterr().err


def test_a_grid_finds_them_too(fedcomp, former, tmp_path, capsys) -> None:
    assert fedcomp("-m", *QUICK, "seed=0,1") == 0
    assert "1 of 2 runs are finished already" in capsys.readouterr().err
    assert not former.exists()


def test_other_runs_and_other_seeds_stay(fedcomp, former, tmp_path) -> None:
    assert fedcomp(*QUICK, "seed=1") == 0
    assert fedcomp(*QUICK, "client.lr=0.3") == 0
    assert former.is_dir()
    assert len(_hashed(tmp_path)) == 3


def test_one_that_is_running_stays(fedcomp, former, tmp_path) -> None:
    with owned(former):
        assert fedcomp(*QUICK) == 0
    assert former.is_dir()


def test_two_choices_of_one_hash_are_told_apart(fedcomp, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(placement, "config_hash", lambda config: "c011151011")
    for lr in (0.1, 0.2, 0.1):
        assert fedcomp(*QUICK, f"client.lr={lr}") == 0
    assert _hashed(tmp_path) == {"c011151011", "c011151011-2"}
    first = json.loads((tmp_path / "fedcomp" / "c011151011" / IDENTITY).read_text())
    assert "client" not in first or first["client"]["sgd"]["lr"] == 0.1


def test_the_folder_of_a_seed() -> None:
    config = {"output_root": "/x", "name": "b", "seed": 3, "rounds": 7}
    assert run_folder(config) == Path(f"/x/b/{placement.config_hash(config)}/seed=3")
