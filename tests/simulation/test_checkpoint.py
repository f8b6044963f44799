"""Checkpoints: round trip, and one clear line for whatever is wrong with a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedcomp.simulation.checkpoint import Checkpoint, load, save


@dataclass(frozen=True)
class State:
    theta: Tensor
    counts: Tensor


STATE = State(torch.tensor([1.5, float("nan")]), torch.tensor([2**60]))


def _saved(folder: Path) -> Path:
    path = folder / "checkpoint.pt"
    save(path, Checkpoint(7, STATE, {"uplink": 2**63}, 12.5), "abcd")
    return path


def test_round_trip(tmp_path: Path) -> None:
    loaded = load(_saved(tmp_path), STATE, "abcd")
    assert loaded.round == 7
    assert loaded.ledger == {"uplink": 2**63}
    assert loaded.seconds == 12.5
    assert torch.equal(loaded.state.theta.view(torch.int32), STATE.theta.view(torch.int32))
    assert torch.equal(loaded.state.counts, STATE.counts)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_half_written(tmp_path: Path, share: float) -> None:
    path = _saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"checkpoint .* is unreadable or half-written .*; overwrite=true") as caught:
        load(path, STATE, "abcd")
    assert "\n" not in str(caught.value)


def test_garbage(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"not a checkpoint at all" * 100)
    with pytest.raises(ValueError, match="unreadable or half-written"):
        load(path, STATE, "abcd")


def test_other_config(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is of config abcd, format 1, not ffff; overwrite=true starts the run anew"):
        load(_saved(tmp_path), STATE, "ffff")


def test_other_shape(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not fit: state 'theta' is"):
        load(_saved(tmp_path), State(torch.zeros(3), STATE.counts), "abcd")
