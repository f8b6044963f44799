"""Street View House Numbers: 73,257 + 26,032 colour 32x32 digits, through torchvision.

Y. Netzer et al., "Reading digits in natural images with unsupervised feature learning", 2011. The "extra" split is
not used, as in FedMRN. Its official code normalises test images by the test set's own statistics (0.4560, 0.2244);
here both splits share the training set's.
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
    mean: float | Iterable[float] = 0.4496,
    std: float | Iterable[float] = 0.1995,
    crop_padding: int = 0,
    flip: bool = False,
) -> Dataset:
    """SVHN from `root`; the digit 0, label 10 in the files, is class 0.

    Mean and deviation, one for all channels, are those of FedMRN's code for training. No paper here augments SVHN, and
    a mirrored digit is another shape.

    Raises ValueError: files that are missing or damaged.
    """
    from torchvision.datasets import SVHN  # here, for it takes a second to import

    from fedcomp.dataset.images.image import image_dataset, samples_of

    train, test = fetch(
        "svhn",
        root,
        "{train,test}_32x32.mat",
        download,
        lambda folder, train, may: SVHN(folder, "train" if train else "test", download=may),
    )
    held_in, held_out = (samples_of(split.data.transpose(0, 2, 3, 1), split.labels) for split in (train, test))
    return image_dataset("svhn", held_in, held_out, [str(digit) for digit in range(10)], mean, std, crop_padding, flip)


def data_files(root: str, **_: object) -> list[Path]:
    """What `load` reads."""
    return below(root, "train_32x32.mat", "test_32x32.mat")
