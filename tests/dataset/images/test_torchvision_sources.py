"""The published image sets, offline, on tiny files of the real formats that are written here.

torchvision compares the MD5 sums of CIFAR's and SVHN's files, which tiny ones cannot have: that comparison alone is
replaced by "is it there"; the reading is torchvision's own, but for MNIST's and Fashion-MNIST's.
"""

import socket
import sys
import time

import numpy as np
import pytest
import torch

from fedcomp.dataset.check import check
from fedcomp.dataset.fetch import fetch
from fedcomp.dataset.images import cifar10, cifar100, fashion_mnist, mnist, svhn
from tests.dataset.images.image_files import RANDOM, present, write_cifar, write_grey

SOURCES = [mnist, fashion_mnist, svhn, cifar10, cifar100]


@pytest.fixture(autouse=True)
def no_package(tmp_path, monkeypatch):
    """As on a machine without Debian's package of Fashion-MNIST."""
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")


@pytest.mark.parametrize(("source", "folder"), [(mnist, "MNIST"), (fashion_mnist, "FashionMNIST")])
def test_idx_files(tmp_path, monkeypatch, source, folder):
    """Without torchvision, which loads torch's compilers, 170 MiB."""
    monkeypatch.setitem(sys.modules, "torchvision", None)
    images = write_grey(tmp_path / folder / "raw")
    dataset = source.load(str(tmp_path), download=False)
    check(dataset)
    for split, samples in (("train", dataset.train), ("t10k", dataset.test)):
        pixels, labels = images[split]
        assert torch.equal(samples.x, torch.from_numpy(pixels)[..., None])
        assert samples.y.tolist() == labels.tolist()
    assert dataset.input_shape == (1, 28, 28)
    assert len(dataset.class_names) == dataset.num_outputs == 10


def test_normalisation_is_in_units_of_unit_pixels(tmp_path):
    write_grey(tmp_path / "MNIST" / "raw")
    dataset = mnist.load(str(tmp_path))
    inputs = dataset.normalise(dataset.train.x)
    assert tuple(inputs.shape) == (12, 1, 28, 28)
    expected = (dataset.train.x.float() / 255 - 0.1307) / 0.3081
    torch.testing.assert_close(inputs[:, 0], expected[..., 0])


@pytest.mark.parametrize(
    ("source", "folder", "train_files", "test_file", "keys", "num_classes"),
    [
        (cifar10, cifar10.PYTHON, cifar10.BATCHES, "test_batch", ("labels", "batches.meta", "label_names"), 10),
        (cifar100, "cifar-100-python", ["train"], "test", ("fine_labels", "meta", "fine_label_names"), 100),
    ],
)
def test_cifar_pickles(tmp_path, monkeypatch, source, folder, train_files, test_file, keys, num_classes):
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", present)
    names = [f"class {label}" for label in range(num_classes)]
    rows = write_cifar(tmp_path / folder, [*train_files, test_file], *keys, names)
    dataset = source.load(str(tmp_path), download=False, crop_padding=4, flip=True)
    check(dataset)
    assert dataset.augments
    assert dataset.class_names == tuple(names)
    assert dataset.input_shape == (3, 32, 32)
    pixels = np.concatenate([rows[file][0] for file in train_files]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    assert torch.equal(dataset.train.x, torch.from_numpy(pixels.copy()))
    assert dataset.train.y.tolist() == [label for file in train_files for label in rows[file][1]]
    assert dataset.test.y.tolist() == rows[test_file][1]
    red = dataset.normalise(dataset.train.x[:1])[0, 0, 0, 0]
    mean, std = (0.485, 0.229) if source is cifar10 else (0.5071, 0.2673)
    assert float(red) == pytest.approx((pixels[0, 0, 0, 0] / 255 - mean) / std, abs=1e-5)


def test_svhn_mat_files(tmp_path, monkeypatch):
    from scipy.io import savemat

    monkeypatch.setattr("torchvision.datasets.svhn.check_integrity", present)
    pixels = RANDOM.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    for split in ("train", "test"):
        savemat(tmp_path / f"{split}_32x32.mat", {"X": pixels, "y": np.array([[10], [1], [9], [10]])})
    dataset = svhn.load(str(tmp_path), download=False)
    check(dataset)
    assert dataset.train.y.tolist() == [0, 1, 9, 0]
    assert torch.equal(dataset.train.x, torch.from_numpy(pixels.transpose(3, 0, 1, 2).copy()))
    assert dataset.input_shape == (3, 32, 32)


WAYS = {
    cifar10: r".*test_batch}\.bin and cifar-10-batches-bin/batches.meta.txt",
    fashion_mnist: ".*dataset-fashion-mnist$",
}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_missing_files_without_download(tmp_path, source):
    line = r"dataset=\w+: not found, or damaged, in /.* \(dataset.download is false\): put .*" + WAYS.get(source, "")
    with pytest.raises(ValueError, match=line) as error:
        source.load(str(tmp_path), download=False)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_missing_files_and_no_network(tmp_path, monkeypatch, source):
    def unreachable(*args, **kwargs):
        raise OSError("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    with pytest.raises(ValueError, match=r"not found.*the download failed: .*Name or service.* dataset.root") as error:
        source.load(str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_damaged_file_is_said_to_be_damaged(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    write_grey(raw)
    images = raw / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"dataset=mnist: the files in .* cannot be read .*delete them") as error:
        mnist.load(str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_grey(tmp_path / "here" / "MNIST" / "raw")
    assert len(mnist.load("~/here").train) == 12


@pytest.mark.parametrize("mean", ["grey", [0.5, None], {"red": "a"}])
def test_normalisation_that_is_no_number(tmp_path, mean):
    write_grey(tmp_path / "MNIST" / "raw")
    with pytest.raises(ValueError, match=r"dataset.mean=.* must be a number or a list"):
        mnist.load(str(tmp_path), mean=mean)


def test_a_host_that_answers_nothing_is_given_up(tmp_path, monkeypatch):
    """And the time limit does not outlive the download."""
    monkeypatch.setattr("fedcomp.dataset.fetch.NO_ANSWER_S", 0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()

        def open_split(folder, train, download):
            if not download:
                raise RuntimeError("Dataset not found")
            with socket.create_connection(silent.getsockname()) as connection:
                return connection.recv(1)

        start = time.monotonic()
        with pytest.raises(ValueError, match="the download failed: timed out"):
            fetch("mine", str(tmp_path), "files", True, open_split)
    assert time.monotonic() - start < 5
    assert socket.getdefaulttimeout() is None
