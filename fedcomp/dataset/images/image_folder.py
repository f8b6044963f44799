"""Any images on disk, one folder a class: FOLDER/train/CLASS/*.jpg and FOLDER/test/CLASS/*.jpg, or FOLDER/CLASS/*.jpg.

Classes and files are those of torchvision's `ImageFolder`. Decoding 60,000 JPEGs of 32x32 takes 10 s, so the pixels
are kept beside the images in `.fedcomp_<size>.npz`, for as long as no file changes its name, size or time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from fedcomp.core.first_line import first_line
from fedcomp.core.ranges import checked
from fedcomp.core.validate import as_typed
from fedcomp.dataset.fetch import below
from fedcomp.dataset.images.decode import Side, num_channels, stack
from fedcomp.dataset.images.links import check_links
from fedcomp.records.atomic_write import atomic_path

if TYPE_CHECKING:
    from torch import Tensor

    from fedcomp.dataset.contract import Dataset, Samples

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What torchvision takes for an image; a test holds both together."""


@checked("dataset.")
def load(
    root: str = ".",
    folder: str | None = None,
    train: str = "train",
    test: str = "test",
    size: Side = None,
    mean: float | Iterable[float] = 0.5,
    std: float | Iterable[float] = 0.5,
    crop_padding: int = 0,
    flip: bool = False,
    cache: bool = True,
    channels: int | None = None,
    name: str = "image_folder",
    owner: str | int | None = None,
    test_fraction: float | None = None,
    split_seed: int = 0,
) -> Dataset:
    """Images of one size from `root/folder/{train,test}/CLASS/`, or from `root/folder/CLASS/` and split at random.

    Args:
        owner: who each training image comes from, for `partition=natural`: a regular expression with one group that is
            searched for in CLASS/NAME.jpg, such as '/([a-z]+)_' for cat/ann_12.jpg; or a number k, for images in
            CLASS/.../OWNER/NAME.jpg with OWNER the k-th folder below CLASS. None: not known.
    Raises:
        ValueError: a missing folder, a link that leads out of it or in a circle, an image that cannot be read, sizes or
            classes that differ.
    """
    from fedcomp.dataset.images.image import image_dataset
    from fedcomp.dataset.split import split_classes

    num_channels(channels, "")
    if folder is None:
        raise ValueError(f"dataset={name} needs dataset.folder, for instance dataset.folder=flowers")
    base = below(root, folder)[0]
    read = functools.partial(_read_split, size=size, cache=cache)
    if test_fraction is None:
        classes, *samples, coloured = _two_folders(base, train, test, read, owner)
    else:
        if (base / train).is_dir() and (base / test).is_dir():
            raise ValueError(
                f"dataset.test_fraction={test_fraction} is for a folder of classes, but {base} holds '{train}' and "
                f"'{test}': leave it out, or split one of them by dataset.folder={base / train}"
            )
        check_links(base, (base,))
        classes, whole, coloured = read(base, owner=owner)
        samples = list(split_classes(whole, test_fraction, split_seed))
    kept = num_channels(channels, coloured)
    held_in, held_out = (replace(one, x=one.x[..., :kept]) for one in samples)
    return image_dataset(name, held_in, held_out, classes, mean, std, crop_padding, flip)


def _two_folders(
    base: Path, train: str, test: str, read: Callable[..., tuple[list[str], Samples, str]], owner: str | int | None
) -> tuple[list[str], Samples, Samples, str]:
    """The classes, both splits as `read` gives them, and the first image that is in colour ("": all are grey)."""
    check_links(base, (base / train, base / test))
    classes, train_samples, coloured = read(base / train, owner=owner)
    test_classes, test_samples, test_coloured = read(base / test)
    if classes != test_classes:
        differ = ", ".join(sorted(set(classes) ^ set(test_classes))[:5])
        raise ValueError(
            f"{base}: '{train}' and '{test}' must hold the same class folders, but differ in: {differ}; give both each "
            f"of them, or hold images of one out by dataset.folder={base / train} dataset.test_fraction=0.2"
        )
    if train_samples.x.shape[1:] != test_samples.x.shape[1:]:
        shapes = [f"{x.shape[1]}x{x.shape[2]}" for x in (train_samples.x, test_samples.x)]
        raise ValueError(f"{base}: images of '{train}' are {shapes[0]}, of '{test}' {shapes[1]}; set dataset.size")
    return classes, train_samples, test_samples, coloured or test_coloured


def data_files(
    root: str = ".",
    folder: str | None = None,
    train: str = "train",
    test: str = "test",
    test_fraction: float | None = None,
    **_: object,
) -> list[Path]:
    """The images of both splits, in the folders of classes and below these."""
    base = below(root, folder or "")[0]
    splits = (train, test) if test_fraction is None else (".",)
    return [path for split in splits for path in sorted(_images(base / split))]


def _images(folder: Path) -> Iterator[Path]:
    """As torchvision finds them, which follows links; a folder that holds itself is gone through once."""
    seen = set()
    for here, inner, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            inner.clear()
            continue
        seen.add(real)
        yield from (Path(here, name) for name in files if name.lower().endswith(EXTENSIONS))


def _read_split(
    folder: Path, size: int | None, cache: bool, owner: str | int | None = None
) -> tuple[list[str], Samples, str]:
    """The classes, the samples in three channels, and the first image that is in colour ("": all are grey)."""
    import torch
    from torchvision.datasets.folder import IMG_EXTENSIONS, find_classes, make_dataset  # slow to import

    from fedcomp.dataset.contract import Samples

    try:
        classes, index_of_class = find_classes(folder)
        files = make_dataset(folder, index_of_class, extensions=IMG_EXTENSIONS)
    except FileNotFoundError as error:
        raise ValueError(
            f"no images in {folder} ({error.strerror or first_line(error)}): put them there as CLASS/NAME.jpg, or set "
            "dataset.folder; of a folder without train and test, dataset.test_fraction=0.2 holds images out"
        ) from None
    paths = [path for path, _ in files]
    pixels, coloured = _cached(folder, paths, size) if cache else _decode(paths, size)
    owners = None if owner is None else _owners(folder, paths, owner)
    return classes, Samples(torch.from_numpy(pixels), torch.tensor([label for _, label in files]), owners), coloured


def _owners(folder: Path, paths: Sequence[str], owner: str | int) -> Tensor:
    """[n] int64 the number of each image's owner, in the order of their names."""
    import torch

    if isinstance(owner, bool) or (isinstance(owner, int) and owner < 1):
        raise ValueError(f"dataset.owner={as_typed(owner)} must be 1 or more levels, a regular expression, or null")
    try:
        pattern = re.compile(owner if isinstance(owner, str) else f"^[^/]+/(?:[^/]+/){{{owner - 1}}}([^/]+)/")
    except re.error as error:
        raise ValueError(f"dataset.owner='{owner}' is no regular expression: {error}") from None
    if pattern.groups != 1:
        raise ValueError(f"dataset.owner='{owner}' must have one group, in parentheses, that is the owner's name")
    names = []
    for path in paths:
        found = pattern.search(Path(path).relative_to(folder).as_posix())
        if found is None or not found[1]:
            what = f"lies in no folder of level {owner}" if isinstance(owner, int) else f"does not match '{owner}'"
            raise ValueError(f"image {path} {what} (dataset.owner), so its owner is not known: rename or move it")
        names.append(found[1])
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    return torch.tensor([numbers[name] for name in names])


def _decode(paths: Sequence[str], size: int | None) -> tuple[np.ndarray, str]:
    """[n, H, W, 3] uint8 pixels of the files, in their order; the first file in colour, or ""."""
    return stack(paths, lambda row: Image.open(paths[row]), size)


def _cached(folder: Path, paths: Sequence[str], size: int | None) -> tuple[np.ndarray, str]:
    """As `_decode`: the decoded files, from the cache where it is of these very files, else decoded and then kept."""
    store = folder / f".fedcomp_{'as_is' if size is None else size}.npz"
    name = _fingerprint(paths, size)
    try:
        with np.load(store) as kept:
            if str(kept["name"]) == name:
                return kept["pixels"], str(kept["coloured"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # none yet, or one cut short: decode again
    pixels, coloured = _decode(paths, size)
    _write(store, name=name, pixels=pixels, coloured=coloured)
    return pixels, coloured


def _fingerprint(paths: Sequence[str], size: int | None) -> str:
    """Changes when a file is added, removed, renamed or written to, also if its time is then set back."""
    digest = blake2b(f"{size}, 16 bits as 8".encode(), digest_size=16)
    for path in paths:
        stat = os.stat(path)
        digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}\n".encode())
    return digest.hexdigest()


def _write(store: Path, **content: Any) -> None:
    """Written atomically; without a cache if the folder cannot be written."""
    with contextlib.suppress(ValueError), atomic_path(store) as temporary, temporary.open("wb") as file:
        np.savez(file, **content)
