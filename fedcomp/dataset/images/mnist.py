"""MNIST: 60,000 + 10,000 grey 28x28 handwritten digits; torchvision downloads them.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition", 1998.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fedcomp.dataset.fetch import below, fetch
from fedcomp.dataset.images.idx import PATTERN, names_of, open_split

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset


def load(
    root: str,
    download: bool = True,
    mean: float | Iterable[float] = 0.1307,
    std: float | Iterable[float] = 0.3081,
    crop_padding: int = 0,
    flip: bool = False,
) -> Dataset:
    """MNIST from `root/MNIST/raw`.

    Mean and deviation are BiCompFL's (its ancestor KLMS's code); no paper here augments MNIST.

    Raises ValueError: files that are missing or damaged.
    """
    from fedcomp.dataset.images.image import image_dataset

    train, test = fetch("mnist", root, f"MNIST/{PATTERN}", download, open_split("MNIST"))
    names = [str(digit) for digit in range(10)]
    return image_dataset("mnist", train, test, names, mean, std, crop_padding, flip)


def data_files(root: str, **_: object) -> list[Path]:
    """What `load` reads."""
    return below(root, *names_of("MNIST"))
