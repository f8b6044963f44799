"""CIFAR-10's binary version, on tiny files of its format that are written here."""

import hashlib

import numpy as np
import pytest

from fedcomp.dataset.check import check
from fedcomp.dataset.images import cifar10
from tests.bare import DATA
from tests.dataset.images.image_files import RANDOM, present, write_cifar


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
        (
            "data_batch_1.bin",
            lambda old: old[:3073] + b"\x0a" + old[3074:],
            r"label 10 at image 1, but labels are 0 to",
        ),
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
    with pytest.raises(ValueError, match=rf"dataset=cifar10: .*{line}") as error:
        cifar10.load(str(tmp_path), check_md5=True)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.data(cifar10.BINARY)
def test_the_official_binary_files():
    dataset = cifar10.load(str(DATA), download=False, check_md5=True)
    check(dataset)
    assert (len(dataset.train), len(dataset.test)) == (50_000, 10_000)
    assert dataset.class_names[:3] == ("airplane", "automobile", "bird")
    assert dataset.train.y.bincount().tolist() == [5000] * 10
