"""Pictures of one size as an array of pixels."""

from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedcomp.core.ranges import Whole

Side = Annotated[int | None, Whole(meaning="pixels a side; null for no resizing")]
GREY = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
"""Pillow's modes of images with one channel, transparency aside."""


def stack(names: Sequence[str], opened: Callable[[int], Image.Image], size: int | None) -> tuple[np.ndarray, str]:
    """[n, H, W, 3] uint8 pixels of pictures, in their order; the first that is in colour, or "".

    Args:
        names: what errors call each picture.
        opened: number -> the picture.
        size: pixels a side to resize to (bilinear); None where all are of one size already.
    Raises:
        ValueError: a picture that cannot be read, sizes that differ, or too little memory.
    """
    from fedcomp.dataset.images.image import check_fits

    pixels, coloured = np.empty((0, 0, 0, 3), np.uint8), ""
    if size is not None:
        check_fits(len(names), size, size)
    for row, name in enumerate(names):
        try:
            with opened(row) as file:
                if not coloured and file.mode not in GREY:
                    coloured = name
                image = file.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise ValueError(f"image {name} cannot be read ({error}): repair or delete it") from None
        if size is not None:
            image = image.resize((size, size), Image.Resampling.BILINEAR)
        if row == 0:
            check_fits(len(names), image.height, image.width)
            pixels = np.empty((len(names), image.height, image.width, 3), np.uint8)
        if pixels.shape[1:3] != (image.height, image.width):
            raise ValueError(
                f"image {name} is {image.height}x{image.width}, but {names[0]} is {pixels.shape[1]}x{pixels.shape[2]}: "
                "all must be of one size; set dataset.size to resize them"
            )
        pixels[row] = np.asarray(image)
    return pixels, coloured


def num_channels(channels: int | None, coloured: str) -> int:
    """1 or 3, by the option `dataset.channels` and the first picture that is in colour ("": all are grey)."""
    if channels not in (None, 1, 3) or isinstance(channels, bool):
        raise ValueError(f"dataset.channels={channels} must be 1, 3, or null: 1 if all images are grey, else 3")
    if channels == 1 and coloured:
        raise ValueError(f"dataset.channels=1 is for grey images, but {coloured} is in colour: take 3, or null")
    return channels or (3 if coloured else 1)
