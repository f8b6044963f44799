"""CIFAR-10: 50,000 + 10,000 colour 32x32 photographs of 10 classes, through torchvision.

A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.dataset.fetch import below, fetch
from fedcomp.dataset.image import image_dataset


def load(
    root: str,
    download: bool = True,
    mean: float | Iterable[float] = (0.485, 0.456, 0.406),
    std: float | Iterable[float] = (0.229, 0.224, 0.225),
    crop_padding: int = 0,
    flip: bool = False,
) -> Dataset:
    """CIFAR-10 from `root/cifar-10-batches-py`.

    Args:
        root: the data folder; `~` is expanded.
        download: download what is missing.
        mean: of pixels in [0, 1]; the defaults are those of FedMRN's official code, ImageNet's statistics.
            BiCompFL (its ancestor KLMS's code) takes 0.5 and 0.5.
        std: as `mean`.
        crop_padding: as in `Dataset`. FedMRN trains with 4 and true, BiCompFL with 0 and false; since the papers
            differ, augmentation belongs to the experiment and is off here.
        flip: as in `Dataset`.
    Raises:
        ValueError: files that are missing or damaged.
    """
    from torchvision.datasets import CIFAR10  # here, for it takes a second to import

    train, test = fetch(
        "cifar10",
        root,
        "cifar-10-batches-py/{data_batch_1..5,test_batch,batches.meta}",
        download,
        lambda folder, may: (CIFAR10(folder, True, download=may), CIFAR10(folder, False, download=may)),
    )
    return image_dataset("cifar10", colour(train), colour(test), train.classes, mean, std, crop_padding, flip)


def colour(split: Any) -> Samples:
    """torchvision's [n, H, W, C] images, and their labels."""
    return Samples(torch.from_numpy(split.data.copy()), torch.tensor(split.targets, dtype=torch.int64))


def data_files(root: str, **_: object) -> list[Path]:
    """What `load` reads."""
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    return below(root, *(f"cifar-10-batches-py/{name}" for name in [*batches, "test_batch", "batches.meta"]))
