"""A dataset of images from raw pixels, its normalisation written as papers write it.

Shape legend: n samples, H height, W width, C channels.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedcomp.core.free_memory import free_bytes
from fedcomp.dataset.contract import Dataset, Samples, Task, Unlabelled

MAX_PIXEL = 255.0


def image_dataset(
    name: str,
    train: Samples,
    test: Samples,
    class_names: Sequence[str],
    mean: float | Iterable[float],
    std: float | Iterable[float],
    crop_padding: int = 0,
    flip: bool = False,
    task: Task = "classification",
    background: bool = False,
    unlabelled: Unlabelled = "ignored",
    rescale: Iterable[float] | None = None,
) -> Dataset:
    """Classes of images or of their pixels, with the normalisation in units of [0, 1] pixels.

    Args:
        train, test: x uint8 [n, H, W, C], y int64 [n], or uint8 [n, H, W].
        mean, std: of pixels / 255, one number or one a channel. Others: as in `Dataset`.
    Raises:
        ValueError: `mean` or `std` that is no number or list of numbers, `rescale` that is not two numbers.
    """
    return Dataset(
        name=name,
        train=train,
        test=test,
        task=task,
        num_outputs=len(class_names),
        mean=_channels("mean", mean) * MAX_PIXEL,
        std=_channels("std", std) * MAX_PIXEL,
        crop_padding=crop_padding,
        flip=flip,
        class_names=tuple(class_names),
        background=background,
        unlabelled=unlabelled,
        rescale=None if rescale is None else _factors(rescale),
    )


def samples_of(pixels: np.ndarray, labels: ArrayLike) -> Samples:
    """Pixels uint8 [n, H, W, C], copied only where they do not lie in this order, with their classes [n]."""
    return Samples(torch.from_numpy(np.ascontiguousarray(pixels)), torch.as_tensor(labels, dtype=torch.int64))


def check_fits(num: int, height: int, width: int, pixel_bytes: int = 3) -> None:
    """Raise ValueError, before pictures are read or drawn, if they are larger than the memory that is free.

    Args:
        num: pictures. pixel_bytes: what a pixel takes meanwhile.
    """
    size, free = num * height * width * pixel_bytes, free_bytes(torch.device("cpu"))
    if size > free:
        raise ValueError(
            f"{num:,} pictures of {height} x {width} pixels take {size / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB "
            "are free: take a smaller dataset.size, or fewer pictures"
        )


def _factors(value: Iterable[float]) -> tuple[float, float]:
    try:
        low, high = (float(number) for number in value)
    except (TypeError, ValueError):
        raise ValueError(f"dataset.rescale={value} must be null or [low, high], two factors") from None
    return low, high


def _channels(name: str, value: float | Iterable[float]) -> Tensor:
    values = [value] if isinstance(value, (int, float, str)) else value
    try:
        return torch.tensor([float(number) for number in values])
    except (TypeError, ValueError):
        raise ValueError(f"dataset.{name}={value} must be a number or a list with one a channel") from None
