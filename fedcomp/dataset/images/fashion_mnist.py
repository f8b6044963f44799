"""Fashion-MNIST: 60,000 + 10,000 grey 28x28 pictures of clothes, downloaded by torchvision or from Debian's package.

H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a novel image dataset", 2017. FedMRN's official code
normalises test images by the test set's own statistics (0.2868, 0.3524); here both splits share the training set's.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.dataset.fetch import below, fetch
from fedcomp.dataset.images.idx import FILES, PATTERN, names_of, open_split, read_split

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset, Samples

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's and Ubuntu's package dataset-fashion-mnist has the four files, gzipped."""
CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def load(
    root: str,
    download: bool = True,
    mean: float | Iterable[float] = 0.2860,
    std: float | Iterable[float] = 0.3530,
    crop_padding: int = 0,
    flip: bool = False,
) -> Dataset:
    """Fashion-MNIST from `root/FashionMNIST/raw` or, where that is missing, from Debian's package.

    Mean and deviation are those of FedMRN's official code for training; no paper here augments Fashion-MNIST.

    Raises ValueError: files that are missing or damaged.
    """
    from fedcomp.dataset.images.image import image_dataset

    if _takes_debian(root):
        train, test = _read_debian(True), _read_debian(False)
    else:
        train, test = fetch(
            "fashion_mnist",
            root,
            f"FashionMNIST/{PATTERN}",
            download,
            open_split("FashionMNIST"),
            "on Debian and Ubuntu install the package dataset-fashion-mnist",
        )
    return image_dataset("fashion_mnist", train, test, CLASSES, mean, std, crop_padding, flip)


def data_files(root: str, **_: object) -> list[Path]:
    """What `load` reads."""
    if _takes_debian(root):
        return [DEBIAN / f"{name}.gz" for pair in FILES.values() for name in pair]
    return below(root, *names_of("FashionMNIST"))


def _takes_debian(root: str) -> bool:
    return DEBIAN.is_dir() and not below(root, "FashionMNIST")[0].is_dir()


def _read_debian(train: bool) -> Samples:
    try:
        return read_split(DEBIAN, train, ".gz")
    except (OSError, ValueError) as error:
        remedy = "install the package anew: apt-get install --reinstall dataset-fashion-mnist"
        raise ValueError(f"dataset=fashion_mnist: {error}: {remedy}") from None
