"""PascalVOC's pictures with the class of every pixel, in the folders that torchvision's `VOCSegmentation` reads.

M. Everingham et al., "The PASCAL visual object classes challenge: a retrospective", IJCV 2015. `erased=true` is what
J. Miao et al., "FedSeg: class-heterogeneous federated learning for semantic segmentation", CVPR 2023, train on, and
FedMRN after them.

Shape legend: n pictures, S pixels a side.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedcomp.core.first_line import first_line
from fedcomp.core.ranges import Whole, checked

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset, Samples, Unlabelled

CLASSES = (
    "background",
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)


@checked("dataset.")
def load(
    root: str = ".",
    year: int = 2012,
    train: str = "train",
    test: str = "val",
    size: Annotated[int, Whole(meaning="pixels a side")] = 256,
    erased: bool = False,
    mean: float | Iterable[float] = (0.485, 0.456, 0.406),
    std: float | Iterable[float] = (0.229, 0.224, 0.225),
    crop_padding: int = 0,
    flip: bool = False,
    unlabelled: Unlabelled = "ignored",
    rescale: Iterable[float] | None = None,
) -> Dataset:
    """Pictures of S x S pixels: resized so that the shorter side has S, then cropped around the centre.

    Pictures are resized bilinearly, classes of pixels by the nearest one. FedSeg and FedMRN train with a `rescale` of
    [0.5, 1.5] and flip.

    Args:
        root: holds `VOCdevkit/VOC<year>/{JPEGImages,SegmentationClass,ImageSets/Segmentation}`; `~` is expanded.
        erased: as FedSeg prepares the data: 20 classes, background pixels have none, and a picture to train on comes
            once for each of its classes, with the pixels of this class only.
    Raises:
        ValueError: a missing or broken file, a mask that has not the size of its picture or has unknown values.
    """
    from fedcomp.dataset.images.image import image_dataset

    folder = _folder(root, year)
    to_train, to_test = (_read(folder, names, size) for names in (train, test))
    if erased:
        to_train, to_test = _once_for_each_class(_without_background(to_train)), _without_background(to_test)
    names = CLASSES[1:] if erased else CLASSES
    return image_dataset(
        "voc",
        to_train,
        to_test,
        names,
        mean,
        std,
        crop_padding,
        flip,
        task="segmentation",
        background=not erased,
        unlabelled=unlabelled,
        rescale=rescale,
    )


def data_files(root: str = ".", year: int = 2012, train: str = "train", test: str = "val", **_: object) -> list[Path]:
    """The lists, and the pictures and masks that they name."""
    folder = _folder(root, year)
    files = []
    for names in (train, test):
        files.append(_list(folder, names))
        files += [file for name in _names(folder, names) for file in _pair(folder, name)]
    return files


def _folder(root: str, year: int) -> Path:
    return Path(root).expanduser().absolute() / "VOCdevkit" / f"VOC{year}"


def _list(folder: Path, names: str) -> Path:
    return folder / "ImageSets" / "Segmentation" / f"{names}.txt"


def _pair(folder: Path, name: str) -> tuple[Path, Path]:
    """The picture and its mask."""
    return folder / "JPEGImages" / f"{name}.jpg", folder / "SegmentationClass" / f"{name}.png"


def _names(folder: Path, names: str) -> list[str]:
    file = _list(folder, names)
    try:
        found = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise ValueError(
            f"dataset=voc: cannot read {file} ({reason}): unpack PascalVOC's archive, such as "
            f"VOCtrainval_11-May-2012.tar, so that {folder} exists, or set dataset.root"
        ) from None
    if not found:
        raise ValueError(f"dataset=voc: {file} names no picture")
    return found


def _read(folder: Path, names: str, size: int) -> Samples:
    """The pictures of a list as x [n, S, S, 3], the classes of their pixels as y [n, S, S], uint8."""
    import torch

    from fedcomp.dataset.contract import IGNORED, Samples
    from fedcomp.dataset.images.image import check_fits

    found = _names(folder, names)
    check_fits(len(found), size, size, 4)
    x = torch.empty(len(found), size, size, 3, dtype=torch.uint8)
    y = torch.empty(len(found), size, size, dtype=torch.uint8)
    for number, name in enumerate(found):
        picture_file, file = _pair(folder, name)
        picture, mask = _open(picture_file), _open(file)
        if mask.mode not in ("P", "L"):
            raise ValueError(
                f"dataset=voc: {file} is an image of mode {mask.mode}, but a mask has one value a pixel, the number of "
                "its class (mode P or L)"
            )
        if mask.size != picture.size:
            raise ValueError(
                f"dataset=voc: {file} is {mask.size[0]}x{mask.size[1]}, but its picture is "
                f"{picture.size[0]}x{picture.size[1]}: both must be alike"
            )
        values = np.asarray(mask)
        unknown = values[(values >= len(CLASSES)) & (values != IGNORED)]
        if unknown.size:
            raise ValueError(
                f"dataset=voc: {file} has a pixel of value {unknown[0]}, but classes are 0 to {len(CLASSES) - 1}, and "
                f"{IGNORED} for none"
            )
        x[number] = torch.from_numpy(_square(picture.convert("RGB"), size, "BILINEAR"))
        y[number] = torch.from_numpy(_square(mask, size, "NEAREST"))
    return Samples(x, y)


def _open(file: Path) -> Any:
    """The decoded image; ValueError where there is none."""
    from PIL import Image

    try:
        image = Image.open(file)
        image.load()
    except FileNotFoundError:
        raise ValueError(f"dataset=voc: {file} is missing: a list names it") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        reason = first_line(error)
        raise ValueError(f"dataset=voc: {file} cannot be read ({reason}): replace it") from None
    return image


def _square(image: Any, size: int, form: str) -> np.ndarray:
    """[S, S, ...]: resized by the shorter side, cropped around the centre."""
    from PIL import Image

    width, height = image.size
    scale = size / min(width, height)
    wide, high = max(size, round(width * scale)), max(size, round(height * scale))
    left, top = (wide - size) // 2, (high - size) // 2
    resized = image.resize((wide, high), Image.Resampling[form])
    return np.array(resized.crop((left, top, left + size, top + size)))


def _without_background(samples: Samples) -> Samples:
    """Classes numbered from 0 without the background, whose pixels have none."""
    import torch

    from fedcomp.dataset.contract import IGNORED, Samples

    y = samples.y
    return Samples(samples.x, torch.where((y == 0) | (y == IGNORED), IGNORED, y.int() - 1).to(torch.uint8))


def _once_for_each_class(samples: Samples) -> Samples:
    """Each picture once for each of its classes, in their order; pixels of its other classes have none."""
    import torch

    from fedcomp.dataset.contract import IGNORED, Samples

    pairs = [
        (number, label)
        for number, picture in enumerate(samples.y)
        for label in picture.unique().tolist()
        if label != IGNORED
    ]
    if not pairs:
        raise ValueError("dataset=voc: with dataset.erased=true no picture to train on has an object")
    index, labels = torch.tensor(pairs).unbind(1)
    y = samples.y[index]
    return Samples(samples.x[index], y.masked_fill(y != labels[:, None, None], IGNORED))
