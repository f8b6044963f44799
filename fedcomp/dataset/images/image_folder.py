"""Any images on disk, one folder a class: FOLDER/train/CLASS/*.jpg and FOLDER/test/CLASS/*.jpg.

Classes and files are those of torchvision's `ImageFolder`. Decoding 60,000 JPEGs of 32x32 takes 10 s, so the pixels
are kept beside the images in `.fedcomp_<size>.npz`, for as long as no file changes its name, size or time.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedcomp.core.first_line import first_line
from fedcomp.core.validate import check_count
from fedcomp.dataset.fetch import below

if TYPE_CHECKING:
    from torch import Tensor

    from fedcomp.dataset.contract import Dataset, Samples

GREY = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
"""Pillow's modes of images with one channel, transparency aside."""

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What torchvision takes for an image; a test holds both together."""


def load(
    root: str = ".",
    folder: str | None = None,
    train: str = "train",
    test: str = "test",
    size: int | None = None,
    mean: float | Iterable[float] = 0.5,
    std: float | Iterable[float] = 0.5,
    crop_padding: int = 0,
    flip: bool = False,
    cache: bool = True,
    channels: int | None = None,
    name: str = "image_folder",
    owner: str | int | None = None,
) -> Dataset:
    """Images of one size from `root/folder/{train,test}/CLASS/`.

    Args:
        root: the folder that a relative `folder` starts from; `~` is expanded.
        folder: the dataset's, which holds the two splits.
        train: the folder of the training split.
        test: the folder of the test split.
        size: pixels a side to resize to (bilinear); None where all images are of one size already.
        mean: of pixels in [0, 1].
        std: as `mean`.
        crop_padding: as in `Dataset`.
        flip: as in `Dataset`.
        cache: keep the decoded pixels in the split's folder, where it can be written.
        channels: 3, red, green and blue, equal where an image is grey; 1, for images that are all stored as grey; None:
            1 if all are, else 3.
        name: what the run calls the dataset.
        owner: who each training image comes from, for `partition=natural`: a regular expression with one group that is
            searched for in CLASS/NAME.jpg, such as '/([a-z]+)_' for cat/ann_12.jpg; or a number k, for images in
            CLASS/.../OWNER/NAME.jpg with OWNER the k-th folder below CLASS. None: not known.
    Raises:
        ValueError: a missing folder, a link that leads out of it or in a circle, an image that cannot be read,
            sizes or classes that differ.
    """
    from fedcomp.dataset.images.image import image_dataset

    check_count("dataset.size", size, meaning="pixels a side; null for no resizing", or_null=True)
    if channels not in (None, 1, 3) or isinstance(channels, bool):
        raise ValueError(f"dataset.channels={channels} must be 1, 3, or null: 1 if all images are grey, else 3")
    if folder is None:
        raise ValueError(f"dataset={name} needs dataset.folder, for instance dataset.folder=flowers")
    base = below(root, folder)[0]
    _check_links(base, (base / train, base / test))
    classes, train_samples, coloured = _read_split(base / train, size, cache, owner)
    test_classes, test_samples, test_coloured = _read_split(base / test, size, cache)
    if classes != test_classes:
        differ = ", ".join(sorted(set(classes) ^ set(test_classes))[:5])
        raise ValueError(f"{base}: '{train}' and '{test}' must hold the same class folders, but differ in: {differ}")
    if train_samples.x.shape[1:] != test_samples.x.shape[1:]:
        shapes = [f"{x.shape[1]}x{x.shape[2]}" for x in (train_samples.x, test_samples.x)]
        raise ValueError(f"{base}: images of '{train}' are {shapes[0]}, of '{test}' {shapes[1]}; set dataset.size")
    coloured = coloured or test_coloured
    if channels == 1 and coloured:
        raise ValueError(f"dataset.channels=1 is for grey images, but {coloured} is in colour: take 3, or null")
    if channels == 1 or (channels is None and not coloured):
        train_samples, test_samples = (replace(one, x=one.x[..., :1]) for one in (train_samples, test_samples))
    return image_dataset(name, train_samples, test_samples, classes, mean, std, crop_padding, flip)


def data_files(
    root: str = ".", folder: str | None = None, train: str = "train", test: str = "test", **_: object
) -> list[Path]:
    """The images of both splits, in the folders of classes and below these."""
    base = below(root, folder or "")[0]
    return [path for split in (train, test) for path in sorted(_images(base / split))]


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
            f"no images in {folder} ({error.strerror or first_line(error)}): put them there as "
            "CLASS/NAME.jpg, or set dataset.folder"
        ) from None
    paths = [path for path, _ in files]
    pixels, coloured = _cached(folder, paths, size) if cache else _decode(paths, size)
    owners = None if owner is None else _owners(folder, paths, owner)
    return classes, Samples(torch.from_numpy(pixels), torch.tensor([label for _, label in files]), owners), coloured


def _owners(folder: Path, paths: Sequence[str], owner: str | int) -> Tensor:
    """[n] int64 the number of each image's owner, in the order of their names."""
    import torch

    if isinstance(owner, bool) or (isinstance(owner, int) and owner < 1):
        raise ValueError(f"dataset.owner={owner} must be 1 or more levels, a regular expression, or null")
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
    from fedcomp.dataset.images.image import check_fits

    pixels, coloured = np.empty((0, 0, 0, 3), np.uint8), ""
    if size is not None:
        check_fits(len(paths), size, size)
    for row, path in enumerate(paths):
        try:
            with Image.open(path) as file:
                if not coloured and file.mode not in GREY:
                    coloured = path
                image = file.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise ValueError(f"image {path} cannot be read ({error}): repair or delete it") from None
        if size is not None:
            image = image.resize((size, size), Image.Resampling.BILINEAR)
        if row == 0:
            check_fits(len(paths), image.height, image.width)
            pixels = np.empty((len(paths), image.height, image.width, 3), np.uint8)
        if pixels.shape[1:3] != (image.height, image.width):
            raise ValueError(
                f"image {path} is {image.height}x{image.width}, but {paths[0]} is {pixels.shape[1]}x{pixels.shape[2]}: "
                "all must be of one size; set dataset.size to resize them"
            )
        pixels[row] = np.asarray(image)
    return pixels, coloured


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
    digest = blake2b(repr(size).encode(), digest_size=16)
    for path in paths:
        stat = os.stat(path)
        digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}\n".encode())
    return digest.hexdigest()


def _write(store: Path, **content: Any) -> None:
    """Written atomically, by a rename; without a cache if the folder cannot be written."""
    temporary = store.with_name(f"{store.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            np.savez(file, **content)
        os.replace(temporary, store)
    except OSError:
        temporary.unlink(missing_ok=True)


def _check_links(base: Path, splits: Sequence[Path]) -> None:
    """Refuse a symbolic link below `splits` that leaves `base`, or through which an image would be read twice.

    The folder `base` itself may be a link.

    Raises:
        ValueError: a link that is broken, leads out of `base`, into a split, or to a folder that was read already.
    """
    home, apart = base.resolve(), list(dict.fromkeys(splits))
    inside = [split.resolve() for split in apart]
    seen = set(inside)
    for index, split in enumerate(apart):
        if split.is_symlink():
            _check_link(split, home, [*inside[:index], *inside[index + 1 :]])
        open_folders = [split]
        while open_folders:
            for entry in _entries(open_folders.pop()):
                path = Path(entry.path)
                if entry.is_symlink():
                    _check_link(path, home, inside)
                if entry.is_dir():
                    real = path.resolve()
                    if real in seen:
                        raise ValueError(f"link {path} leads to {real}, whose images would be seen twice: remove it")
                    seen.add(real)
                    open_folders.append(path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The folder's entries sorted by name; none if there is no such folder, which `_read_split` reports."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _check_link(link: Path, home: Path, splits: Sequence[Path]) -> None:
    """Refuse a broken link, one out of `home`, and one to any of `splits` or a folder that holds one."""
    real = Path(os.path.realpath(link))
    if not real.exists():
        raise ValueError(f"link {link} leads nowhere (to {real}): repair or remove it")
    if not real.is_relative_to(home):
        raise ValueError(
            f"link {link} leads out of {home}, to {real}: copy what it names into the folder, or set dataset.folder to "
            "a folder that holds all images"
        )
    if any(real.is_relative_to(split) or split.is_relative_to(real) for split in splits):
        raise ValueError(f"link {link} leads to {real}, whose images would be seen twice: remove it")
