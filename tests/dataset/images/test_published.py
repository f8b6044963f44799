"""The published image sets, offline, on tiny files of the real formats that are written here.

torchvision compares the MD5 sums of CIFAR's and SVHN's files, which tiny ones cannot have: that comparison alone is
replaced by "is it there"; the reading is torchvision's own, but for MNIST's, Fashion-MNIST's and binary CIFAR-10's."""

import gzip
import hashlib
import socket
import sys
import time

import numpy as np
import pytest
import torch

from fedcomp.dataset.check import check
from fedcomp.dataset.fetch import fetch
from fedcomp.dataset.images import cifar10, cifar100, fashion_mnist, mnist, svhn
from tests.bare import DATA
from tests.dataset.images.image_files import RANDOM, present, write_cifar, write_grey
from tests.looped import looped
from tests.raising import raising
from tests.refused import one_line_error

SOURCES = [mnist, fashion_mnist, svhn, cifar10, cifar100]


@pytest.fixture(autouse=True)
def no_package(tmp_path, monkeypatch):
    """As on a machine without Debian's package of Fashion-MNIST; its folder would be `tmp_path / "debian"`."""
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


TEN = (cifar10, cifar10.PYTHON, cifar10.BATCHES, "test_batch", ("labels", "batches.meta", "label_names"), 10)
HUNDRED = (cifar100, "cifar-100-python", ["train"], "test", ("fine_labels", "meta", "fine_label_names"), 100)


@pytest.mark.parametrize(("source", "folder", "train_files", "test_file", "keys", "num_classes"), [TEN, HUNDRED])
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


WAYS = {cifar10: r".*test_batch}\.bin and cifar-10-batches-bin/bat", fashion_mnist: ".*dataset-fashion-mnist$"}


@looped("source", SOURCES)
def test_missing_files_without_download(tmp_path, source):
    line = r"dataset=\w+: not found, or damaged, in /.* \(dataset.download is false\): put .*" + WAYS.get(source, "")
    with one_line_error(line):
        source.load(str(tmp_path), download=False)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_missing_files_and_no_network(tmp_path, monkeypatch, source):
    monkeypatch.setattr(socket, "getaddrinfo", raising(OSError("Name or service not known")))
    with one_line_error(r"not found.*the download failed: .*Name or service.* dataset.root"):
        source.load(str(tmp_path))


def test_a_damaged_file_is_said_to_be_damaged(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    write_grey(raw)
    images = raw / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-100])
    with one_line_error(r"dataset=mnist: the files in .* cannot be read .*delete them"):
        mnist.load(str(tmp_path))


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


@pytest.fixture
def binary(tmp_path, monkeypatch):
    """A folder with CIFAR-10's binary version of 4 images a file."""
    monkeypatch.setattr(cifar10, "NUM_RECORDS", 4)
    folder = tmp_path / cifar10.BINARY
    folder.mkdir()
    sums = {}
    for name in cifar10.MD5:
        records = RANDOM.integers(0, 256, (4, 3073), dtype=np.uint8)
        records[:, 0] = RANDOM.integers(0, 10, 4)
        (folder / name).write_bytes(records.tobytes())
        sums[name] = hashlib.md5(records.tobytes()).hexdigest()
    monkeypatch.setattr(cifar10, "MD5", sums)
    names = [f"class{label}" for label in range(10)]
    (folder / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    return folder


def test_cifar10_binary_version(tmp_path, binary):
    dataset = cifar10.load(str(tmp_path), download=False, check_md5=True)
    check(dataset)
    assert dataset.class_names == tuple(f"class{label}" for label in range(10))
    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    for samples, files in ((dataset.train, names), (dataset.test, ["test_batch.bin"])):
        content = b"".join((binary / name).read_bytes() for name in files)
        for image in range(len(samples)):
            record = content[3073 * image : 3073 * (image + 1)]
            assert int(samples.y[image]) == record[0]
            for channel, row, column in ((0, 0, 0), (0, 3, 5), (1, 0, 31), (2, 31, 30)):
                place = 1 + 1024 * channel + 32 * row + column
                assert int(samples.x[image, row, column, channel]) == record[place]
    assert len(dataset.train) == 20
    assert {path.parent for path in cifar10.data_files(str(tmp_path))} == {binary}
    assert all(path.is_file() for path in cifar10.data_files(str(tmp_path)))


def test_cifar10_prefers_the_python_version(tmp_path, monkeypatch, binary):
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", present)
    files = [*cifar10.BATCHES, "test_batch"]
    names = list("abcdefghij")
    rows = write_cifar(tmp_path / cifar10.PYTHON, files, "labels", "batches.meta", "label_names", names)
    assert cifar10.load(str(tmp_path), download=False).test.y.tolist() == rows["test_batch"][1]
    assert all(path.is_file() for path in cifar10.data_files(str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("data_batch_3.bin", lambda old: old[:-1], r"data_batch_3.bin has 12,291 bytes, but 4 images of 3,073 bytes"),
        ("test_batch.bin", lambda old: old + b"\0", r"test_batch.bin has 12,293 bytes"),
        ("data_batch_1.bin", lambda old: old[:3073] + b"\x0a" + old[3074:], "label 10 at image 1, but labels are 0 to"),
        ("data_batch_5.bin", lambda old: old[:-1] + bytes([old[-1] ^ 1]), r"data_batch_5.bin is not the official file"),
        ("data_batch_2.bin", None, r"data_batch_2.bin cannot be read \(No such file"),
        ("batches.meta.txt", lambda old: b"cat dog", r"batches.meta.txt has 2 words, but must name the 10 classes"),
        ("batches.meta.txt", None, r"batches.meta.txt cannot be read"),
    ],
)
def test_a_wrong_binary_file(tmp_path, binary, name, change, line):
    path = binary / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with one_line_error(rf"dataset=cifar10: .*{line}"):
        cifar10.load(str(tmp_path), check_md5=True)


@pytest.mark.slow
@pytest.mark.data(cifar10.BINARY)
def test_the_official_binary_files():
    dataset = cifar10.load(str(DATA), download=False, check_md5=True)
    check(dataset)
    assert (len(dataset.train), len(dataset.test)) == (50_000, 10_000)
    assert dataset.class_names[:3] == ("airplane", "automobile", "bird")
    assert dataset.train.y.bincount().tolist() == [5000] * 10


@pytest.fixture
def debian(tmp_path):
    """Debian's folder of gzipped files, and its images."""
    images = write_grey(tmp_path / "plain")
    (tmp_path / "debian").mkdir()
    for path in (tmp_path / "plain").iterdir():
        (tmp_path / "debian" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    return images


def test_fashion_mnist_of_debian(tmp_path, debian):
    dataset = fashion_mnist.load(str(tmp_path / "root"), download=False)
    check(dataset)
    for split, samples in (("train", dataset.train), ("t10k", dataset.test)):
        assert torch.equal(samples.x[..., 0], torch.from_numpy(debian[split][0]))
        assert samples.y.tolist() == debian[split][1].tolist()
    files = fashion_mnist.data_files(str(tmp_path / "root"))
    assert len(files) == 4
    assert all(path.parent == tmp_path / "debian" and path.is_file() for path in files)


def test_the_users_own_fashion_mnist_comes_first(tmp_path, debian):
    own = write_grey(tmp_path / "root" / "FashionMNIST" / "raw", num_train=3)
    assert len(fashion_mnist.load(str(tmp_path / "root"), download=False).train) == len(own["train"][0]) == 3
    assert all(path.is_file() for path in fashion_mnist.data_files(str(tmp_path / "root")))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda old: old[:-9], r"t10k-images-idx3-ubyte.gz cannot be read"),
        (lambda old: gzip.compress(gzip.decompress(old)[:-1]), r"is no IDX file of 3 axes, or cut short"),
        (lambda old: gzip.compress(b"hello"), r"is no IDX file of 3 axes"),
        (lambda old: b"hello", r"cannot be read \(Not a gzipped file"),
    ],
)
def test_a_wrong_gzipped_file(tmp_path, debian, change, line):
    path = tmp_path / "debian" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(change(path.read_bytes()))
    with one_line_error(rf"dataset=fashion_mnist: .*{line}.*install the package anew"):
        fashion_mnist.load(str(tmp_path / "root"))


def test_gzipped_labels_that_do_not_fit(tmp_path, debian):
    path = tmp_path / "debian" / "train-labels-idx1-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:-1] + b"\x0a"))
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte.gz has label 10, but labels are 0 to 9"):
        fashion_mnist.load(str(tmp_path / "root"))
    path.write_bytes(gzip.compress(content[:7] + b"\x0b" + content[8:-1]))
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz has 12 images, but 11 labels"):
        fashion_mnist.load(str(tmp_path / "root"))
