"""Tiny files in the formats of the published image sets."""

import os
import pickle

import numpy as np

RANDOM = np.random.default_rng(0)


def write_idx(path, array):
    """The MNIST files' format: 0, 0, type 8 (uint8), axes, then big-endian sizes and the bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(header + array.tobytes())


def write_grey(folder, num_train=12):
    """MNIST's four files; the pixels and labels of each split."""
    images = {}
    for split, num in (("train", num_train), ("t10k", 5)):
        pixels = RANDOM.integers(0, 256, (num, 28, 28), dtype=np.uint8)
        labels = np.arange(num, dtype=np.uint8) % 10
        write_idx(folder / f"{split}-images-idx3-ubyte", pixels)
        write_idx(folder / f"{split}-labels-idx1-ubyte", labels)
        images[split] = (pixels, labels)
    return images


def write_cifar(folder, files, label_key, meta, names_key, names):
    """CIFAR's pickled batches and their list of classes; the pixels and labels of each batch."""
    folder.mkdir(parents=True)
    rows = {}
    for file in files:
        data = RANDOM.integers(0, 256, (4, 3 * 32 * 32), dtype=np.uint8)
        labels = RANDOM.integers(0, len(names), 4).tolist()
        (folder / file).write_bytes(pickle.dumps({"data": data, label_key: labels}))
        rows[file] = (data, labels)
    (folder / meta).write_bytes(pickle.dumps({names_key: names}))
    return rows


def present(path, md5=None):
    """In place of torchvision's comparison of MD5 sums: is the file there?"""
    return os.path.isfile(path)
