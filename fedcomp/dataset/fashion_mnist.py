"""Fashion-MNIST: 60,000 + 10,000 grey 28x28 pictures of clothes, through torchvision.

H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a novel image dataset", 2017. FedMRN's official code
normalises test images by the test set's own statistics (0.2868, 0.3524); here both splits share the training set's.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedcomp.dataset.contract import Dataset
from fedcomp.dataset.fetch import below, fetch
from fedcomp.dataset.image import image_dataset
from fedcomp.dataset.mnist import grey


def load(
    root: str,
    download: bool = True,
    mean: float | Iterable[float] = 0.2860,
    std: float | Iterable[float] = 0.3530,
    crop_padding: int = 0,
    flip: bool = False,
) -> Dataset:
    """Fashion-MNIST from `root/FashionMNIST/raw`.

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
    from torchvision.datasets import FashionMNIST  # here, for it takes a second to import

    train, test = fetch(
        "fashion_mnist",
        root,
        "FashionMNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte",
        download,
        lambda folder, may: (FashionMNIST(folder, True, download=may), FashionMNIST(folder, False, download=may)),
    )
    return image_dataset("fashion_mnist", grey(train), grey(test), train.classes, mean, std, crop_padding, flip)


def data_files(root: str, **_: object) -> list[Path]:
    """What `load` reads."""
    splits = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return below(root, *(f"FashionMNIST/raw/{split}-ubyte" for split in splits))
