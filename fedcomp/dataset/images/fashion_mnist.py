"""Fashion-MNIST: 60,000 + 10,000 grey 28x28 pictures of clothes, through torchvision or from Debian's package.

H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a novel image dataset", 2017. FedMRN's official code
normalises test images by the test set's own statistics (0.2868, 0.3524); here both splits share the training set's.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedcomp.dataset.fetch import below, fetch
from fedcomp.dataset.images.mnist import grey

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset, Samples

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's and Ubuntu's package dataset-fashion-mnist has the four files, gzipped."""
CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def load(
    root: str,
    download: bool = True,
    mean: float | Iterable[float] = 0.2860,
    std: float | Iterable[float] = 0.3530,
    crop_padding: int = 0,
    flip: bool = False,
) -> Dataset:
    """Fashion-MNIST from `root/FashionMNIST/raw` or, where that is missing, from Debian's package.

    Args:
        root: the data folder; `~` is expanded.
        download: download what is missing.
        mean: of pixels in [0, 1]; the defaults are those of FedMRN's official code for training.
        std: as `mean`.
        crop_padding: as in `Dataset`; no paper here augments Fashion-MNIST.
        flip: as in `Dataset`.
    Raises:
        ValueError: files that are missing or damaged.
    """
    from fedcomp.dataset.images.image import image_dataset

    if _takes_debian(root):
        train, test = (_read_debian(*_FILES[split]) for split in ("train", "test"))
        return image_dataset("fashion_mnist", train, test, CLASSES, mean, std, crop_padding, flip)
    from torchvision.datasets import FashionMNIST  # here, for it takes a second to import

    pictures, test_pictures = fetch(
        "fashion_mnist",
        root,
        "FashionMNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte",
        download,
        lambda folder, train, may: FashionMNIST(folder, train, download=may),
        "on Debian and Ubuntu install the package dataset-fashion-mnist",
    )
    train, test = grey(pictures), grey(test_pictures)
    return image_dataset("fashion_mnist", train, test, CLASSES, mean, std, crop_padding, flip)


def data_files(root: str, **_: object) -> list[Path]:
    """What `load` reads."""
    names = [name for pair in _FILES.values() for name in pair]
    if _takes_debian(root):
        return [DEBIAN / f"{name}.gz" for name in names]
    return below(root, *(f"FashionMNIST/raw/{name}" for name in names))


def _takes_debian(root: str) -> bool:
    return DEBIAN.is_dir() and not below(root, "FashionMNIST")[0].is_dir()


def _read_debian(images: str, labels: str) -> Samples:
    """One split from two gzipped IDX files."""
    import torch

    from fedcomp.dataset.contract import Samples

    x, y = _read_idx(DEBIAN / f"{images}.gz", 3), _read_idx(DEBIAN / f"{labels}.gz", 1)
    if len(x) != len(y):
        raise ValueError(f"dataset=fashion_mnist: {DEBIAN / images}.gz has {len(x)} images, but {len(y)} labels")
    if y.max() >= len(CLASSES):
        raise ValueError(f"dataset=fashion_mnist: {DEBIAN / labels}.gz has label {y.max()}, but labels are 0 to 9")
    return Samples(torch.from_numpy(x[..., None].copy()), torch.from_numpy(y.astype(np.int64)))


def _read_idx(path: Path, num_axes: int) -> np.ndarray:
    """uint8 array of a gzipped IDX file: 0, 0, 8, the number of axes, their big-endian sizes, the bytes."""
    remedy = "install the package anew: apt-get install --reinstall dataset-fashion-mnist"
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"dataset=fashion_mnist: {path} cannot be read ({error}): {remedy}") from None
    start = 4 + 4 * num_axes
    sizes = [int(size) for size in np.frombuffer(content[4:start], ">u4")] if len(content) >= start else []
    if content[:4] != bytes([0, 0, 8, num_axes]) or len(content) - start != int(np.prod(sizes)):
        raise ValueError(f"dataset=fashion_mnist: {path} is no IDX file of {num_axes} axes, or cut short: {remedy}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(sizes)
