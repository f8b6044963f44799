"""MNIST: 60,000 + 10,000 grey 28x28 handwritten digits, through torchvision.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition", 1998.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcomp.dataset.fetch import below, fetch

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset, Samples


def load(
    root: str,
    download: bool = True,
    mean: float | Iterable[float] = 0.1307,
    std: float | Iterable[float] = 0.3081,
    crop_padding: int = 0,
    flip: bool = False,
) -> Dataset:
    """MNIST from `root/MNIST/raw`.

    Args:
        root: the data folder; `~` is expanded.
        download: download what is missing.
        mean: of pixels in [0, 1]; the defaults are BiCompFL's (its ancestor KLMS's code).
        std: as `mean`.
        crop_padding: as in `Dataset`; no paper here augments MNIST.
        flip: as in `Dataset`.
    Raises:
        ValueError: files that are missing or damaged.
    """
    from torchvision.datasets import MNIST  # here, for it takes a second to import

    from fedcomp.dataset.images.image import image_dataset

    train, test = fetch(
        "mnist",
        root,
        "MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte",
        download,
        lambda folder, train, may: MNIST(folder, train, download=may),
    )
    names = [str(digit) for digit in range(10)]
    return image_dataset("mnist", grey(train), grey(test), names, mean, std, crop_padding, flip)


def grey(split: Any) -> Samples:
    """torchvision's [n, 28, 28] images with a channel axis, and their labels."""
    from fedcomp.dataset.contract import Samples

    return Samples(split.data.unsqueeze(-1), split.targets.long())


def data_files(root: str, **_: object) -> list[Path]:
    """What `load` reads."""
    splits = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return below(root, *(f"MNIST/raw/{split}-ubyte" for split in splits))
