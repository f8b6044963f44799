"""Owners as clients, text, and classes of pixels, through the command line."""

import math
import random
from pathlib import Path

import pytest

from tests.left import record
from tests.thorough import thorough

SIZES = {"ann": 300, "bob": 180, "cyd": 1200, "dan": 1500}
TEXT = ("model=char_lstm", "model.hidden=8", "model.layers=1", "client.batch_size=50", "rounds=2")


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
    assert fedcomp_with_pictures("dataset=shakespeare", text, *owners, *TEXT) == 0
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


@pytest.mark.parametrize("algorithm", ["fedmrn", *thorough(["fedpm", "fedsparsify"])])
def test_methods_with_masks_on_text(fedcomp, tmp_path: Path, text: str, algorithm: str) -> None:
    assert fedcomp("dataset=shakespeare", text, "num_clients=2", f"algorithm={algorithm}", *TEXT) == 0


TINY = """
dataset=shapes dataset.size=32 dataset.num_train=12 dataset.num_test=6 model=bisenetv2 model.width=0.05
model.boosters=false num_clients=2 client.batch_size=4 rounds=1 threads=1
"""


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["fedavg", "fedmrn", "fedpm", "fedsparsify", "bicompfl_gr"])
def test_methods_on_pixels(fedcomp, tmp_path: Path, algorithm: str) -> None:
    assert fedcomp(*TINY.split(), f"algorithm={algorithm}", "dataset.flip=true", "dataset.crop_padding=2") == 0
    last = record(tmp_path)[-1]
    assert 0 <= last["test/miou"] <= 1
    assert {"test/accuracy", "test/loss", "train/loss"} <= last.keys()


@pytest.mark.thorough
def test_pictures_of_random_sizes(fedcomp, tmp_path: Path) -> None:
    """They change what is learnt, alike for any chunk size."""
    for name, options in (("plain", ()), ("resized", ("dataset.rescale=[0.5,1.5]",))):
        assert fedcomp(*TINY.split(), *options, f"name={name}") == 0
    assert fedcomp(*TINY.split(), "dataset.rescale=[0.5,1.5]", "name=chunks", "chunk_size=1") == 0
    plain, resized, chunks = (record(tmp_path / name)[-1] for name in ("plain", "resized", "chunks"))
    assert plain["train/loss"] != resized["train/loss"]
    assert resized["test/loss"] == pytest.approx(chunks["test/loss"], rel=1e-4)


@pytest.mark.thorough
def test_booster_heads_are_sent(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*TINY.split(), "model.boosters=true") == 0
    with_boosters = record(tmp_path / "fedcomp")[-1]["bits/uplink"]
    assert fedcomp(*TINY.split(), "name=without") == 0
    assert with_boosters > 2 * record(tmp_path / "without")[-1]["bits/uplink"]


@pytest.mark.thorough
def test_repetitions(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*TINY.split(), "repeats=2") == 0
    assert 0 <= record(tmp_path)[-1]["test/miou"] <= 1


@pytest.mark.thorough
def test_clients_of_one_class(fedcomp, tmp_path: Path) -> None:
    options = ("dataset.objects=1", "partition=labels", "partition.labels_per_client=2", "dataset.num_train=40")
    assert fedcomp(*TINY.split(), *options, "num_clients=4") == 0


@pytest.mark.thorough
def test_pixels_without_a_class_of_an_absent_one(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*TINY.split(), "dataset.unlabelled=absent", "dataset.objects=1") == 0
    absent = record(tmp_path / "fedcomp")[-1]["train/loss"]
    assert fedcomp(*TINY.split(), "name=ignored", "dataset.objects=1") == 0
    assert absent != record(tmp_path / "ignored")[-1]["train/loss"]


@pytest.mark.slow
def test_a_small_network_learns_shapes(fedcomp, tmp_path: Path) -> None:
    """Background everywhere has a mean IoU of 0.16; 12 rounds of FedAvg with 16 clients reached 0.455."""
    network = ("dataset=shapes", "model=bisenetv2", "model.width=0.25", "model.boosters=false", "num_clients=16")
    local = ("client.batch_size=8", "client.lr=0.05", "client.momentum=0.9", "rounds=12", "eval_every=12")
    assert fedcomp(*network, *local) == 0
    assert record(tmp_path)[-1]["test/miou"] > 0.35
