"""Crops and flips by hand, and against padding and slicing one image at a time."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from fedcomp.dataset.contract import IGNORED, Dataset, Samples
from fedcomp.dataset.images.augment import augment, crop_and_flip, num_draws, resize_and_crop
from fedcomp.random.keys import Key
from tests.looped import looped


@looped("dtype", [torch.uint8, torch.float32])
@looped("height, width, channels, padding", [(5, 7, 3, 2), (1, 4, 1, 3), (6, 6, 2, 0)])
@looped("flip", [True, False])
def test_equals_padding_and_slicing_each_image(dtype, height, width, channels, padding, flip):
    shape = (2, 3, height, width, channels)
    raw = (Key(("pixels",)).uniform(torch.arange(1), 6 * height * width * channels) * 255).to(dtype).reshape(shape)
    uniform = Key(("draws",)).uniform(torch.arange(6), 3).reshape(2, 3, 3)
    moved = crop_and_flip(raw, uniform, padding, flip)
    for client in range(2):
        for sample in range(3):
            padded = torch.zeros(height + 2 * padding, width + 2 * padding, channels, dtype=dtype)
            padded[padding : padding + height, padding : padding + width] = raw[client, sample]
            top, left = ((uniform[client, sample, :2] * (2 * padding + 1)).floor().int()).tolist()
            crop = padded[top : top + height, left : left + width]
            expected = crop.flip(1) if flip and uniform[client, sample, 2] < 0.5 else crop
            assert torch.equal(moved[client, sample], expected)


@looped("padding", range(1, 20))
def test_the_largest_draw_stays_within_the_padding(padding):
    largest = torch.tensor([[1 - 2.0**-24, 1 - 2.0**-24, 0.9]])
    raw = torch.ones(1, padding + 1, padding + 1, 1, dtype=torch.uint8)
    moved = crop_and_flip(raw, largest, padding, False)[0, :, :, 0]
    assert int(moved.sum()) == 1
    assert int(moved[0, 0]) == 1


def test_classes_of_pixels_move_with_their_picture():
    """Where the picture's padding is 0, that of its classes has none, and everything else lies where it lay before."""
    picture = torch.arange(1, 31).to(torch.uint8).view(1, 5, 6, 1).expand(4, 5, 6, 1)
    uniform = Key(("draws",)).uniform(torch.arange(4), 3)
    moved = crop_and_flip(picture, uniform, 2, flip=True)
    classes = crop_and_flip(picture, uniform, 2, flip=True, fill=255)
    assert torch.equal(classes == 255, moved == 0)
    assert torch.equal(classes.masked_fill(classes == 255, 0), moved)
    assert (moved == 0).any()


def _one_resized(image: Tensor, draws: list[float], low: float, high: float, nearest: bool, fill: int) -> Tensor:
    """The slow twin: torch's resize of one image [H, W, C], padded and sliced."""
    height, width, _ = image.shape
    scale = low + (high - low) * draws[3]
    tall, wide = math.ceil(height * scale), math.ceil(width * scale)
    how = {"mode": "nearest"} if nearest else {"mode": "bilinear", "align_corners": False}
    resized = F.interpolate(image.movedim(-1, 0)[None].float(), (tall, wide), **how)[0].movedim(0, -1)
    down, across = ((side - new) // 2 + 1 if new < side else 0 for side, new in ((height, tall), (width, wide)))
    padded = F.pad(resized, (0, 0, across, across, down, down), value=float(fill))
    top, left = math.floor(draws[0] * (len(padded) - height)), math.floor(draws[1] * (padded.shape[1] - width))
    return padded[top : top + height, left : left + width]


@looped("low, high", [(0.5, 1.5), (0.3, 0.9), (1.0, 2.5), (1.0, 1.0)])
@looped("nearest, fill", [(False, 0), (True, 255)])
def test_random_sizes_equal_torchs_resize_of_each_image(low, high, nearest, fill):
    raw = (Key(("pixels",)).uniform(torch.arange(12), 9 * 13 * 3) * 255).to(torch.uint8).reshape(3, 4, 9, 13, 3)
    uniform = Key(("draws",)).uniform(torch.arange(12), 4).reshape(3, 4, 4)
    moved = resize_and_crop(raw, uniform, (low, high), nearest, fill)
    assert moved.shape == raw.shape
    assert moved.dtype == (torch.uint8 if nearest else torch.float32)
    for client in range(3):
        for sample in range(4):
            draws = uniform[client, sample].double().tolist()
            expected = _one_resized(raw[client, sample], draws, low, high, nearest, fill)
            torch.testing.assert_close(moved[client, sample].float(), expected, rtol=0, atol=0 if nearest else 1e-3)


def test_pictures_and_their_classes_are_resized_together():
    """A picture whose colour is its class stays so but for a pixel at the edge; padding is colour 0 without a class."""
    half = (torch.arange(16) >= 9).to(torch.uint8)
    y = (1 + half)[:, None].expand(16, 16)[None].repeat(200, 1, 1)
    samples = Samples((100 * y)[..., None], y)
    dataset = Dataset("toy", samples, samples, "segmentation", 3, flip=True, rescale=(0.5, 1.5))
    x, classes = augment(dataset, samples.x, samples.y, Key(("draws",)).uniform(torch.arange(200), num_draws(dataset)))
    colour, known = x[..., 0], classes != IGNORED
    assert (colour[~known] == 0).all()
    same = (colour / 100 - classes).abs() < 0.5  # the nearest pixel is up to one from that of the linear resize
    assert same[known].float().mean() > 0.96
    assert 0 < int((~known).sum()) < known.sum()
