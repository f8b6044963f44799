"""CIFAR-100: 50,000 + 10,000 colour 32x32 photographs of 100 fine classes, through torchvision.

A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.dataset.fetch import below, fetch

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset


def load(
    root: str,
    download: bool = True,
    mean: float | Iterable[float] = (0.5071, 0.4865, 0.4409),
    std: float | Iterable[float] = (0.2673, 0.2564, 0.2762),
    crop_padding: int = 0,
    flip: bool = False,
) -> Dataset:
    """CIFAR-100 from `root/cifar-100-python`.

    Mean and deviation are those of FedMRN's official code. Augmentation is off as in `cifar10`.

    Raises ValueError: files that are missing or damaged.
    """
    from torchvision.datasets import CIFAR100  # here, for it takes a second to import

    from fedcomp.dataset.images.image import image_dataset, samples_of

    train, test = fetch(
        "cifar100",
        root,
        "cifar-100-python/{train,test,meta}",
        download,
        lambda folder, train, may: CIFAR100(folder, train, download=may),
    )
    held_in, held_out = (samples_of(split.data, split.targets) for split in (train, test))
    return image_dataset("cifar100", held_in, held_out, train.classes, mean, std, crop_padding, flip)


def data_files(root: str, **_: object) -> list[Path]:
    """What `load` reads."""
    return below(root, *(f"cifar-100-python/{name}" for name in ("train", "test", "meta")))
