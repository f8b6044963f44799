"""Owners as clients and text, through the command line."""

import math
import random
from pathlib import Path

import pytest

from tests.left import record
from tests.thorough import thorough

SIZES = {"ann": 300, "bob": 180, "cyd": 1200, "dan": 1500}
TINY = ("model=char_lstm", "model.hidden=8", "model.layers=1", "client.batch_size=50", "rounds=2")


@pytest.fixture
def text(tmp_path: Path) -> str:
    """Four roles, the last two long enough to be tested."""
    draw = random.Random(0)
    blocks = [f"{name}:\n" + "".join(draw.choice("abcde ") for _ in range(size)) for name, size in SIZES.items()]
    (tmp_path / "tinyshakespeare.txt").write_text("\n\n".join(blocks))
    return f"dataset.root={tmp_path}"


def _table(folder: Path) -> str:
    rows = [f"{row},{row % 2},{'abc'[row % 3] if row < 9 else 'd'}" for row in range(12)]
    (folder / "mine.csv").write_text("\n".join(["x,y,who", *rows]))
    return f"dataset.path={folder / 'mine.csv'}"


def test_every_owner_of_a_table_is_a_client(fedcomp_with_pictures, tmp_path: Path) -> None:
    data = ("dataset=csv", _table(tmp_path), "dataset.target=y", "dataset.owner=who", "dataset.test_fraction=0")
    assert fedcomp_with_pictures(*data, "model=linear", "partition=natural", "num_clients=null", "rounds=1") == 0
    assert record(tmp_path)[-1]["bits/uplink"] == 4 * 32 * 2, "four owners, two parameters"


def test_text_is_trained_and_measured(fedcomp_with_pictures, tmp_path: Path, text: str) -> None:
    owners = ("partition=natural", "num_clients=null", "participation=uniform", "participation.num_participants=2")
    assert fedcomp_with_pictures("dataset=shakespeare", text, *owners, *TINY) == 0
    first, *_, last = record(tmp_path)
    assert {"test/loss", "test/accuracy", "test/perplexity", "train/loss"} <= last.keys()
    assert last["test/perplexity"] == pytest.approx(math.exp(last["test/loss"]), rel=1e-6)
    assert last["test/loss"] < first["test/loss"]


@pytest.mark.parametrize("model", ["char_lstm", *thorough(["char_gpt"])])
def test_every_position_as_a_target(fedcomp, tmp_path: Path, text: str, model: str) -> None:
    small = ("model.width=8", "model.heads=2") if model == "char_gpt" else ("model.hidden=8",)
    options = ("dataset.targets=all", "client.batch_size=50", "rounds=1", f"model={model}", *small)
    assert fedcomp("dataset=shakespeare", text, "partition=natural", "num_clients=3", *options) == 0
    assert record(tmp_path)[-1]["test/perplexity"] > 1


@pytest.mark.parametrize("algorithm", ["fedmrn", "fedpm", "fedsparsify"])
def test_methods_with_masks_on_text(fedcomp, tmp_path: Path, text: str, algorithm: str) -> None:
    assert fedcomp("dataset=shakespeare", text, "num_clients=2", f"algorithm={algorithm}", *TINY) == 0
