"""A run whose model has a frozen base: nobody sends or saves it, and the trained model is whole again."""

import json
import sys
from pathlib import Path

import pytest
import torch

from fedcomp.api import Run, run
from fedcomp.records.checkpoint import read_last
from fedcomp.records.run_folder import CHECKPOINT, LOG

BASE = """
from pathlib import Path
import torch

class Net(torch.nn.Module):
    def __init__(self, num_outputs, buffer=False):
        super().__init__()
        base = torch.full((100, 64), float(Path(__file__).with_name("base.txt").read_text()))
        if buffer:
            self.register_buffer("base", base)
        else:
            self.base = torch.nn.Parameter(base, requires_grad=False)
        self.head = torch.nn.Linear(100, num_outputs)

    def forward(self, x):
        return self.head(torch.tanh(x @ self.base.mT))
"""
GIVEN = ("model=module", "model.path=frozen_base_net.Net", "num_clients=3", "rounds=2", "pictures=false", "device=cpu")
HEAD = 100 * 10 + 10


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "frozen_base_net.py").write_text(BASE)
    (tmp_path / "base.txt").write_text("0.01")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("frozen_base_net", None)
    return tmp_path / "base.txt"


def _run(folder: Path, *more: str) -> Run:
    return run([*GIVEN, *more, f"output_root={folder}"])


def test_it_is_neither_sent_nor_saved_and_the_model_is_whole(base: Path, tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert done.lines[-1]["bits/uplink"] == 2 * 3 * 32 * HEAD
    assert done.lines[-1]["bpp/whole_model"] == pytest.approx(done.lines[-1]["bpp/total"] * HEAD / (HEAD + 6400))
    content = read_last(done.folder / CHECKPOINT)
    assert content is not None
    assert max(tensor.numel() for tensor in content.state.values()) == HEAD
    model = done.model(trust_code=True)
    assert torch.equal(model.base, torch.full((100, 64), 0.01))
    assert bool(model.head.weight.any())
    assert (
        f"model: {HEAD:,} trained numbers, 6,400 frozen, 0 statistics; 13.6 % of the whole model"
        in (done.folder / LOG).read_text()
    )
    (kept,) = json.loads((done.folder / "provenance.json").read_text())["model"].values()
    assert (kept["files"], kept["bytes"]) == (1, 4 * 6400)


def test_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    done = _run(tmp_path)
    base.write_text("0.02")
    with pytest.raises(ValueError, match="the model's frozen tensors are not those of the run: restore the file"):
        done.model(trust_code=True)


def test_statistics_that_outnumber_the_trained_numbers_are_pointed_at(base: Path, tmp_path: Path) -> None:
    log = (_run(tmp_path, "model.options.buffer=true").folder / LOG).read_text()
    assert f"model: {HEAD:,} trained numbers, 0 frozen, 6,400 statistics" in log
    assert "warning: the model's statistics" in log
