"""CIFAR-10: 50,000 + 10,000 colour 32x32 photographs of 10 classes, from either form of the official files.

A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009. The "python version" is read through
torchvision; the "binary version" holds the same pixels: a record is 1 byte of label and 3,072 bytes of pixels, red,
green and blue planes row by row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedcomp.dataset.fetch import below, fetch

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset, Samples

PYTHON, BINARY = "cifar-10-batches-py", "cifar-10-batches-bin"
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
NUM_RECORDS = 10_000
"""Images in each of the six binary files."""
RECORD_BYTES = 1 + 3 * 32 * 32
MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
"""Of the official binary files."""


def load(
    root: str,
    download: bool = True,
    mean: float | Iterable[float] = (0.485, 0.456, 0.406),
    std: float | Iterable[float] = (0.229, 0.224, 0.225),
    crop_padding: int = 0,
    flip: bool = False,
    check_md5: bool = False,
) -> Dataset:
    """CIFAR-10 from `root/cifar-10-batches-py` or, where that is missing, from `root/cifar-10-batches-bin`.

    What is downloaded is the python version, of which torchvision always compares the MD5 sums. Mean and deviation are
    those of FedMRN's official code, ImageNet's; BiCompFL (its ancestor KLMS's code) takes 0.5 and 0.5. FedMRN trains
    with crop_padding=4 and flip=true, BiCompFL without: augmentation belongs to the experiment and is off here.

    Raises ValueError: files that are missing or damaged.
    """
    from fedcomp.dataset.images.image import image_dataset, samples_of

    if _takes_binary(root):
        train, test, names = _read_binary(below(root, BINARY)[0], check_md5)
        return image_dataset("cifar10", train, test, names, mean, std, crop_padding, flip)
    from torchvision.datasets import CIFAR10  # here, for it takes a second to import

    python = f"{PYTHON}/{{data_batch_1..5,test_batch,batches.meta}}"
    binary = f"{BINARY}/{{data_batch_1..5,test_batch}}.bin and {BINARY}/batches.meta.txt"
    pickled, pickled_test = fetch(
        "cifar10",
        root,
        f"{python} (python version) or {binary} (binary version)",
        download,
        lambda folder, train, may: CIFAR10(folder, train, download=may),
    )
    held_in, held_out = (samples_of(split.data, split.targets) for split in (pickled, pickled_test))
    return image_dataset("cifar10", held_in, held_out, pickled.classes, mean, std, crop_padding, flip)


def data_files(root: str, **_: object) -> list[Path]:
    """What `load` reads."""
    if _takes_binary(root):
        return below(root, *(f"{BINARY}/{name}" for name in (*MD5, "batches.meta.txt")))
    return below(root, *(f"{PYTHON}/{name}" for name in (*BATCHES, "test_batch", "batches.meta")))


def _takes_binary(root: str) -> bool:
    python, binary = below(root, PYTHON, BINARY)
    return binary.is_dir() and not python.is_dir()


def _read_binary(folder: Path, check_md5: bool) -> tuple[Samples, Samples, list[str]]:
    """Training samples, test samples and the names of the ten classes."""
    import torch

    from fedcomp.dataset.contract import Samples

    try:
        names = (folder / "batches.meta.txt").read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"dataset=cifar10: {folder / 'batches.meta.txt'} cannot be read ({error})") from None
    if len(names) != 10:
        raise ValueError(
            f"dataset=cifar10: {folder / 'batches.meta.txt'} has {len(names)} words, but must name the 10 classes: put "
            "the official file there"
        )
    batches = {name: _read_batch(folder / name, len(names), check_md5) for name in MD5}
    test = batches.pop("test_batch.bin")
    train = Samples(torch.cat([one.x for one in batches.values()]), torch.cat([one.y for one in batches.values()]))
    return train, test, names


def _read_batch(path: Path, num_classes: int, check_md5: bool) -> Samples:
    """The images and labels of one binary file. Raises ValueError: missing, of another size, foreign or changed."""
    from fedcomp.dataset.images.image import samples_of

    remedy = "put the official file there (CIFAR-10 binary version), or set dataset.root"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"dataset=cifar10: {path} cannot be read ({error.strerror}): {remedy}") from None
    expected = NUM_RECORDS * RECORD_BYTES
    if len(content) != expected:
        raise ValueError(
            f"dataset=cifar10: {path} has {len(content):,} bytes, but {NUM_RECORDS:,} images of {RECORD_BYTES:,} bytes "
            f"make {expected:,}: {remedy}"
        )
    records = np.frombuffer(content, np.uint8).reshape(NUM_RECORDS, RECORD_BYTES)
    labels = records[:, 0]
    if labels.max() >= num_classes:
        image = int((labels >= num_classes).argmax())
        raise ValueError(
            f"dataset=cifar10: {path} has label {labels[image]} at image {image}, but labels are 0 to "
            f"{num_classes - 1}: {remedy}"
        )
    if check_md5 and hashlib.md5(content, usedforsecurity=False).hexdigest() != MD5[path.name]:
        raise ValueError(f"dataset=cifar10: {path} is not the official file (its MD5 sum is another): {remedy}")
    return samples_of(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels.astype(np.int64))
