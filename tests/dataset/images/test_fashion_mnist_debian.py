"""Fashion-MNIST as Debian's package installs it, on tiny gzipped files that are written here."""

import gzip

import pytest
import torch

from fedcomp.dataset.check import check
from fedcomp.dataset.images import fashion_mnist
from tests.dataset.images.image_files import write_grey


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """Debian's folder of gzipped files, and its images."""
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")
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
    with pytest.raises(ValueError, match=rf"dataset=fashion_mnist: .*{line}.*install the package anew") as error:
        fashion_mnist.load(str(tmp_path / "root"))
    assert "\n" not in str(error.value)


def test_gzipped_labels_that_do_not_fit(tmp_path, debian):
    path = tmp_path / "debian" / "train-labels-idx1-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:-1] + b"\x0a"))
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte.gz has label 10, but labels are 0 to 9"):
        fashion_mnist.load(str(tmp_path / "root"))
    path.write_bytes(gzip.compress(content[:7] + b"\x0b" + content[8:-1]))
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz has 12 images, but 11 labels"):
        fashion_mnist.load(str(tmp_path / "root"))
