"""Classes of pixels through the command line: methods of several kinds, repetitions, and what does not fit."""

from pathlib import Path

import pytest

from tests.left import record

SMALL = ("dataset.size=32", "dataset.num_train=12", "dataset.num_test=6", "num_clients=2", "client.batch_size=4")
TINY = (
    "dataset=shapes",
    "model=bisenetv2",
    "model.width=0.05",
    "model.boosters=false",
    *SMALL,
    "rounds=1",
    "threads=1",
)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["fedavg", "fedmrn", "fedpm", "fedsparsify", "bicompfl_gr"])
def test_methods_on_pixels(fedcomp, tmp_path: Path, algorithm: str) -> None:
    assert fedcomp(*TINY, f"algorithm={algorithm}", "dataset.flip=true", "dataset.crop_padding=2") == 0
    last = record(tmp_path)[-1]
    assert 0 <= last["test/miou"] <= 1
    assert {"test/accuracy", "test/loss", "train/loss"} <= last.keys()


@pytest.mark.thorough
def test_pictures_of_random_sizes(fedcomp, tmp_path: Path) -> None:
    """They change what is learnt, alike for any chunk size."""
    for name, options in (("plain", ()), ("resized", ("dataset.rescale=[0.5,1.5]",))):
        assert fedcomp(*TINY, *options, f"name={name}") == 0
    assert fedcomp(*TINY, "dataset.rescale=[0.5,1.5]", "name=chunks", "chunk_size=1") == 0
    plain, resized, chunks = (record(tmp_path / name)[-1] for name in ("plain", "resized", "chunks"))
    assert plain["train/loss"] != resized["train/loss"]
    assert resized["test/loss"] == pytest.approx(chunks["test/loss"], rel=1e-4)


@pytest.mark.thorough
def test_booster_heads_are_sent(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*TINY, "model.boosters=true") == 0
    with_boosters = record(tmp_path / "fedcomp")[-1]["bits/uplink"]
    assert fedcomp(*TINY, "name=without") == 0
    assert with_boosters > 2 * record(tmp_path / "without")[-1]["bits/uplink"]


@pytest.mark.thorough
def test_repetitions(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*TINY, "repeats=2") == 0
    assert 0 <= record(tmp_path)[-1]["test/miou"] <= 1


@pytest.mark.thorough
def test_clients_of_one_class(fedcomp, tmp_path: Path) -> None:
    options = ("dataset.objects=1", "partition=labels", "partition.labels_per_client=2", "dataset.num_train=40")
    assert fedcomp(*TINY, *options, "num_clients=4") == 0


@pytest.mark.thorough
def test_pixels_without_a_class_of_an_absent_one(fedcomp, tmp_path: Path) -> None:
    assert fedcomp(*TINY, "dataset.unlabelled=absent", "dataset.objects=1") == 0
    absent = record(tmp_path / "fedcomp")[-1]["train/loss"]
    assert fedcomp(*TINY, "name=ignored", "dataset.objects=1") == 0
    assert absent != record(tmp_path / "ignored")[-1]["train/loss"]


@pytest.mark.slow
def test_a_small_network_learns_shapes(fedcomp, tmp_path: Path) -> None:
    """Background everywhere has a mean IoU of 0.16; 12 rounds of FedAvg with 16 clients reached 0.455."""
    network = ("dataset=shapes", "model=bisenetv2", "model.width=0.25", "model.boosters=false", "num_clients=16")
    local = ("client.batch_size=8", "client.lr=0.05", "client.momentum=0.9", "rounds=12", "eval_every=12")
    assert fedcomp(*network, *local) == 0
    assert record(tmp_path)[-1]["test/miou"] > 0.35
