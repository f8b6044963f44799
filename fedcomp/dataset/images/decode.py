"""Pictures of one size as an array of pixels."""

from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedcomp.core.ranges import Whole

Side = Annotated[int | None, Whole(meaning="pixels a side; null for no resizing")]
GREY = {"1", "L", "LA", "La"}
"""Pillow's modes of images with one channel of 8 bits at most, transparency aside."""
SIXTEEN_BITS = {"I;16", "I;16L", "I;16B", "I;16N"}
"""Its modes of grey images of 16 bits, which it also opens as I: PNG before Pillow 10.3, and PGM."""


def stack(names: Sequence[str], opened: Callable[[int], Image.Image], size: int | None) -> tuple[np.ndarray, str]:
    """[n, H, W, 3] uint8 pixels of pictures, in their order; the first that is in colour, or "".

    Args:
        names: what errors call each picture.
        opened: number -> the picture.
        size: pixels a side to resize to (bilinear); None where all are of one size already.
    Raises:
        ValueError: a picture that cannot be read, or without a known range, sizes that differ, or too little memory.
    """
    from fedcomp.dataset.images.image import check_fits

    pixels, coloured = np.empty((0, 0, 0, 3), np.uint8), ""
    if size is not None:
        check_fits(len(names), size, size)
    for row, name in enumerate(names):
        try:
            with opened(row) as file:
                eight = _in_eight_bits(file, name)
                if not coloured and eight.mode not in GREY:
                    coloured = name
                image = eight.convert("RGB")
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


def _in_eight_bits(image: Image.Image, name: str) -> Image.Image:
    """The picture, or of a grey one of 16 bits its higher 8; Pillow's own conversion takes 255 for all above it."""
    if image.mode in SIXTEEN_BITS or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(
            f"image {name} has 32 bits a pixel, whose range it does not say: save it as grey of 8 or 16 bits"
        )
    return image


def num_channels(channels: int | None, coloured: str) -> int:
    """1 or 3, by the option `dataset.channels` and the first picture that is in colour ("": all are grey)."""
    if channels not in (None, 1, 3) or isinstance(channels, bool):
        raise ValueError(f"dataset.channels={channels} must be 1, 3, or null: 1 if all images are grey, else 3")
    if channels == 1 and coloured:
        raise ValueError(f"dataset.channels=1 is for grey images, but {coloured} is in colour: take 3, or null")
    return channels or (3 if coloured else 1)
