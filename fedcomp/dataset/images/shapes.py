"""Coloured shapes with the class of every pixel: segmentation without any files, all drawn from a seed.

Discs, squares, triangles and rings lie on a background of one colour, later ones over earlier ones, under pixel noise.
Colours are part of the task: a shape's colour leans towards its class's own hue. Pixels beside another class have no
class, as the outlines of PascalVOC.

Shape legend: n pictures, S pixels a side, P = S^2 pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedcomp.core.ranges import Whole, Within, checked

if TYPE_CHECKING:
    from torch import Tensor

    from fedcomp.dataset.contract import Dataset, Samples, Unlabelled
    from fedcomp.random.keys import Key

CLASSES = ("background", "disc", "square", "triangle", "ring")
NUM_SHAPES = len(CLASSES) - 1
HUES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 1.0, 0.0))
"""Red, green, blue and yellow: where the colours of the shapes lean to."""
RADII = (0.20, 0.34)
"""Smallest and largest radius, in parts of S."""
CONTRAST = 0.35
"""Least difference, in some channel, between a shape's colour and what lies under its centre."""
DRAWING_BYTES = 40
"""Of a pixel while it is drawn: three float32 colours, their noise, masks."""
TRIES = 16
"""Draws of a colour; if none differs by `CONTRAST`, the last is taken."""


@checked("dataset.")
def load(
    size: Annotated[int, Whole(16)] = 64,
    num_train: Annotated[int, Whole()] = 512,
    num_test: Annotated[int, Whole()] = 200,
    objects: Annotated[int, Whole(most=9)] = 2,
    hue: Annotated[float, Within("[0, 1]")] = 0.4,
    noise: Annotated[float, Within("[0, inf)")] = 0.1,
    seed: Annotated[int, Whole(0)] = 0,
    mean: float | Iterable[float] = 0.5,
    std: float | Iterable[float] = 0.25,
    crop_padding: int = 0,
    flip: bool = False,
    unlabelled: Unlabelled = "ignored",
    rescale: Iterable[float] | None = None,
) -> Dataset:
    """Pictures [n, S, S, 3] and the classes of their pixels [n, S, S]; picture i does not depend on n.

    Raises ValueError: an argument outside its range.
    """
    from fedcomp.dataset.images.image import check_fits, image_dataset
    from fedcomp.random.keys import Key

    check_fits(num_train + num_test, size, size, DRAWING_BYTES)
    train, test = (
        _draw(num, size, objects, hue, noise, Key(("dataset", "shapes", seed, split)))
        for num, split in ((num_train, "train"), (num_test, "test"))
    )
    return image_dataset(
        "shapes",
        train,
        test,
        CLASSES,
        mean,
        std,
        crop_padding,
        flip,
        task="segmentation",
        background=True,
        unlabelled=unlabelled,
        rescale=rescale,
    )


def data_files(**_: object) -> list[Path]:
    """None: the options say which pictures are drawn."""
    return []


def _draw(num: int, size: int, objects: int, hue: float, noise: float, key: Key) -> Samples:
    """n pictures: x uint8 [n, S, S, 3], y uint8 [n, S, S]."""
    import torch

    from fedcomp.dataset.contract import IGNORED, Samples
    from fedcomp.dataset.images.image import MAX_PIXEL

    ids = torch.arange(num)
    colours = (0.2 + 0.6 * key.fold_in("background").uniform(ids, 3))[:, None].repeat(1, size * size, 1)  # [n, P, 3]
    y = torch.zeros(num, size * size, dtype=torch.int64)
    present = 1 + (key.fold_in("number").uniform(ids, 1)[:, 0] * objects).long()
    for number in range(objects):
        own = key.fold_in("object", number)
        shape, radius, centre, angle = _geometry(own.uniform(ids, 5), size)
        inside = _inside(shape, radius, centre, angle, size) & (number < present)[:, None]
        under = colours[ids, centre.long()[:, 1] * size + centre.long()[:, 0]]
        leaning = torch.tensor(HUES)[shape][:, None]
        drawn = own.fold_in("colour").uniform(ids, 3 * TRIES).view(num, TRIES, 3) * (1 - hue) + hue * leaning
        differs = (drawn - under[:, None]).abs().amax(2) >= CONTRAST
        differs[:, -1] = True
        chosen = drawn[ids, differs.int().argmax(1)]  # the first that differs
        colours = torch.where(inside[..., None], chosen[:, None], colours)
        y = torch.where(inside, 1 + shape[:, None], y)
    if noise > 0:
        for first in range(0, num, 64):  # in parts, for memory
            part = ids[first : first + 64]
            drawn = key.fold_in("noise").normal(part, 3 * size * size)
            colours[first : first + 64] += noise * drawn.view(len(part), -1, 3)
    x = (colours.clamp(0, 1) * MAX_PIXEL).round().to(torch.uint8).view(num, size, size, 3)
    y = y.view(num, size, size)
    return Samples(x, y.masked_fill(_beside_another(y), IGNORED).to(torch.uint8))


def _geometry(uniform: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shape [n] from 0, radius [n], centre [n, 2], angle [n] of objects that lie within the picture; lengths in pixels.

    `uniform`: draws [n, 5].
    """
    import torch

    shape = (uniform[:, 0] * NUM_SHAPES).long()
    radius = (RADII[0] + (RADII[1] - RADII[0]) * uniform[:, 1]) * size
    reach = torch.where(shape == 1, radius * (0.8 * math.sqrt(2)), radius)[:, None]  # a square's corners
    centre = reach + (size - 2 * reach) * uniform[:, 2:4]
    return shape, radius, centre, 2 * math.pi * uniform[:, 4]


def _inside(shape: Tensor, radius: Tensor, centre: Tensor, angle: Tensor, size: int) -> Tensor:
    """[n, P] bool: the pixels, row by row, that lie within each object."""
    import torch

    place = torch.arange(size) + 0.5
    across = (place.repeat(size) - centre[:, :1]) / radius[:, None]
    down = (place.repeat_interleave(size) - centre[:, 1:]) / radius[:, None]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    u, v = cos * across + sin * down, cos * down - sin * across
    distance = (across.square() + down.square()).sqrt()
    each = torch.stack(
        (
            distance <= 1,
            torch.maximum(u.abs(), v.abs()) <= 0.8,
            (v > -0.5) & (v < 1 - 1.9 * u.abs()),
            (distance >= 0.55) & (distance <= 1),
        )
    )
    return each[shape, torch.arange(len(shape))]


def _beside_another(y: Tensor) -> Tensor:
    """[n, S, S] bool: pixels one of whose four neighbours is of another class."""
    import torch

    beside = torch.zeros_like(y, dtype=torch.bool)
    for axis in (1, 2):
        differs = y.narrow(axis, 1, y.shape[axis] - 1) != y.narrow(axis, 0, y.shape[axis] - 1)
        beside.narrow(axis, 1, y.shape[axis] - 1).logical_or_(differs)
        beside.narrow(axis, 0, y.shape[axis] - 1).logical_or_(differs)
    return beside
