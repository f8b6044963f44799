"""Grey pictures in IDX files, as MNIST and Fashion-MNIST are published.

torchvision downloads them, but does not read them: importing it loads torch's compilers, 170 MiB.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Samples

FILES = {
    True: ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    False: ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""Images and labels; whether they are for training."""
PATTERN = "raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte"
"""All of them in torchvision's folder of a data set, for errors."""


def names_of(name: str) -> list[str]:
    """The files of torchvision's class `name`, below the data folder."""
    return [f"{name}/raw/{file}" for pair in FILES.values() for file in pair]


def open_split(name: str) -> Callable[[str, bool, bool], Samples]:
    """What `fetch` opens a split of torchvision's class `name` with: downloaded by it, if asked for, and read here."""

    def opened(root: str, train: bool, download: bool) -> Samples:
        if download:
            from torchvision import datasets

            vars(datasets)[name](root, train, download=True)
        return read_split(Path(root) / name / "raw", train)

    return opened


def read_split(folder: Path, train: bool, ending: str = "") -> Samples:
    """Samples [n, H, W, 1] of one of `FILES`; gzipped where the `ending` is ".gz".

    Raises FileNotFoundError; ValueError: a file is damaged, or has other labels than 0 to 9.
    """
    from fedcomp.dataset.images.image import samples_of

    images, labels = (folder / f"{name}{ending}" for name in FILES[train])
    x, y = _read(images, 3), _read(labels, 1)
    if len(x) != len(y):
        raise ValueError(f"{images} has {len(x)} images, but {len(y)} labels")
    if y.max() >= 10:
        raise ValueError(f"{labels} has label {y.max()}, but labels are 0 to 9")
    return samples_of(x[..., None], y.astype(np.int64))


def _read(path: Path, num_axes: int) -> np.ndarray:
    """uint8 array of an IDX file: 0, 0, 8, the number of axes, their big-endian sizes, the bytes."""
    try:
        if path.suffix == ".gz":
            content = np.frombuffer(bytearray(gzip.decompress(path.read_bytes())), np.uint8)
        else:
            content = np.fromfile(path, np.uint8)  # which the samples are, so that they are in memory once
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read ({error})") from None
    start = 4 + 4 * num_axes
    sizes = content[4:start].view(">u4").tolist() if len(content) >= start else []
    if content[:4].tolist() != [0, 0, 8, num_axes] or len(content) - start != int(np.prod(sizes)):
        raise ValueError(f"{path} is no IDX file of {num_axes} axes, or cut short")
    return content[start:].reshape(sizes)
