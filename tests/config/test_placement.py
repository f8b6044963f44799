"""Folders are named by what was chosen; choices of one hash are kept apart; a damaged identity is said."""

import json
from pathlib import Path

import pytest

from fedcomp.config import placement
from fedcomp.config.placement import IDENTITY, run_folder

QUICK = ("rounds=2", "num_clients=4", "pictures=false", "compressor=topk", "compressor.feedback=error")


def _hashed(tmp_path: Path) -> set[str]:
    return {path.parent.parent.name for path in tmp_path.rglob("config.yaml")}


def test_the_folder_says_what_its_hash_stands_for(fedcomp, tmp_path) -> None:
    assert fedcomp(*QUICK) == 0
    (path,) = tmp_path.rglob(IDENTITY)
    assert json.loads(path.read_text())["compressor"] == {"topk": {"feedback": "error"}}
    assert len(path.parent.name) == 10


@pytest.mark.parametrize("content", [b"", b"{}\n", b"not JSON", b"\xff\xfe"])
def test_a_damaged_identity_is_said_with_the_way_back(fedcomp, tmp_path, capsys, content: bytes) -> None:
    assert fedcomp(*QUICK) == 0
    (path,) = tmp_path.rglob(IDENTITY)
    whole = path.read_bytes()
    path.write_bytes(content)
    capsys.readouterr()
    assert fedcomp(*QUICK) == 1
    assert f"{path} is damaged" in capsys.readouterr().err
    path.unlink()  # what the line says
    assert fedcomp(*QUICK) == 0
    assert "already finished" in capsys.readouterr().err
    assert path.read_bytes() == whole


def test_two_choices_of_one_hash_are_told_apart(fedcomp, tmp_path, monkeypatch) -> None:
    for name in ("config_hash", "hash_of"):
        monkeypatch.setattr(placement, name, lambda _: "c011151011")
    for lr in (0.1, 0.2, 0.1):
        assert fedcomp(*QUICK, f"client.lr={lr}") == 0
    assert _hashed(tmp_path) == {"c011151011", "c011151011-2"}
    first = json.loads((tmp_path / "fedcomp" / "c011151011" / IDENTITY).read_text())
    assert "client" not in first or first["client"]["sgd"]["lr"] == 0.1


def test_the_folder_of_a_seed() -> None:
    config = {"output_root": "/x", "name": "b", "seed": 3, "rounds": 7}
    assert run_folder(config) == Path(f"/x/b/{placement.config_hash(config)}/seed=3")


def test_a_new_run_names_an_unfinished_one_that_differs_by_what_is_recorded_alone(fedcomp, tmp_path, capsys) -> None:
    assert fedcomp(*QUICK) == 0
    (status,) = tmp_path.rglob("status.json")

    def said(*words: str) -> str:
        capsys.readouterr()
        assert fedcomp(*QUICK, *words, "overwrite=true") == 0
        return capsys.readouterr().err

    assert "to go on with it" not in said("eval_every=2"), "the other run is finished"
    status.write_text(json.dumps({"state": "interrupted", "round": 1}))
    assert "to go on with it" not in said("client.lr=0.2")
    line = f"{status.parent} has 1 rounds of the same run with eval_every=1: to go on with it, stop this one and give "
    shown = " ".join(said("eval_every=3", "label=new").split())
    assert f"{line}eval_every=1" in shown
