"""What takes minutes or real data: `make slow`."""

from pathlib import Path

import pytest

from tests.bare import DATA
from tests.left import record
from tests.outside import write_files

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


@pytest.mark.data("MNIST/raw")
def test_lenet_learns_mnist_past_95_percent(fedcomp, tmp_path: Path) -> None:
    assert fedcomp("dataset=mnist", "model=lenet5", "rounds=20", "eval_every=5", f"dataset.root={DATA}") == 0
    assert record(tmp_path)[-1]["test/accuracy"] > 0.95


@pytest.mark.data("cifar10-jpeg")
def test_batch_norm_network_learns_cifar10_jpeg(fedcomp, tmp_path: Path) -> None:
    options = ("num_clients=10", "participation=uniform", "participation.num_participants=2", "client.batch_size=64")
    data = ("dataset=cifar10_jpeg", f"dataset.root={DATA}", "dataset.crop_padding=4", "dataset.flip=true")
    assert fedcomp(*data, "model=cnn4_bn", "rounds=8", "eval_every=4", "client.lr=0.05", *options) == 0
    lines = record(tmp_path)
    assert lines[-1]["test/accuracy"] > 0.2  # chance is 0.1; sixteen client-rounds from weights of size 0.01
    stats = 2 * 480
    dim = lines[-1]["bits/uplink"] / (32 * 8 * 2) - stats
    assert dim == 399_136


@pytest.mark.parametrize(("compressor", "feedback"), [("dense", "none"), ("topk", "error"), ("sign", "error")])
def test_packed_wire_over_a_whole_default_run(fedcomp, tmp_path: Path, compressor: str, feedback: str) -> None:
    for wire in ("counted", "packed"):
        options = (
            f"compressor={compressor}",
            f"compressor.feedback={feedback}",
            f"wire={wire}",
            f"output_root={tmp_path / wire}",
        )
        assert fedcomp(*options, "partition=dirichlet", "partition.alpha=0.3") == 0
    assert record(tmp_path / "counted") == record(tmp_path / "packed")


SMALL_CNN = """
from torch import nn

def small_cnn():
    layers = nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)
    return nn.Sequential(*layers)
"""


def test_threads_change_no_bit(fedcomp, tmp_path: Path) -> None:
    """A user's own convolutional network, whose chunks of one client are shared by threads."""
    import torch

    choice = "_target_: small_cnn.small_cnn\n_partial_: true\n"
    mine = write_files(tmp_path / "mine", {"small_cnn.py": SMALL_CNN, "model/small.yaml": choice})
    states = []
    for threads in (1, 2, 3):
        root = tmp_path / str(threads)
        options = ("model=small", "rounds=3", "client.batch_size=20", f"threads={threads}", f"output_root={root}")
        assert fedcomp("--config-dir", str(mine), *options) == 0
        (checkpoint,) = root.rglob("checkpoint.pt")
        states.append(torch.load(checkpoint, weights_only=True)["state"])
    for other in states[1:]:
        assert all(torch.equal(tensor, other[name]) for name, tensor in states[0].items())
