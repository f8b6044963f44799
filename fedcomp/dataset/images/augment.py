"""Random sizes, crops and mirror images of raw image batches, as a pure function of uniform draws.

FedMRN's official code, on both CIFARs, crops 32x32 out of an image padded by 4 zero pixels, then mirrors
it with probability 1/2. On PascalVOC it resizes by a random factor before it crops, as FedSeg does (J. Miao et al.,
"FedSeg: class-heterogeneous federated learning for semantic segmentation", CVPR 2023).

Shape legend: any leading axes (clients, batch), H height, W width, C channels; n images.
"""

import torch
from torch import Tensor
from torch.nn import functional

from fedcomp.dataset.contract import IGNORED, Dataset


def num_draws(dataset: Dataset) -> int:
    """Uniform draws a sample: vertical place, horizontal place, mirror and, for a random size, its factor."""
    return 3 if dataset.rescale is None else 4


def augment(dataset: Dataset, raw: Tensor, y: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Raw images [..., H, W, C] and their targets, changed as the dataset says; classes of pixels move with them.

    Args:
        uniform: [..., num_draws] draws on [0, 1), one row an image.
    Returns:
        Images and targets; images that were resized are float32, all else has the types of `raw` and `y`.
    """
    raw = _changed(dataset, raw, uniform)
    if dataset.task == "segmentation":
        y = _changed(dataset, y[..., None], uniform, nearest=True, fill=IGNORED)[..., 0]
    return raw, y


def _changed(dataset: Dataset, raw: Tensor, uniform: Tensor, nearest: bool = False, fill: int = 0) -> Tensor:
    if dataset.rescale is not None:
        raw = resize_and_crop(raw, uniform, dataset.rescale, nearest, fill)
    return crop_and_flip(raw, uniform[..., :3], dataset.crop_padding, dataset.flip, fill)


def crop_and_flip(raw: Tensor, uniform: Tensor, padding: int, flip: bool, fill: int = 0) -> Tensor:
    """Shift each image by up to `padding` pixels over `fill`, then mirror it left to right if its third draw is < 1/2.

    A crop of the padded image at (dy, dx) = floor((2 padding + 1) * (u_0, u_1)) is a shift: pixel (h, w) of the
    result is pixel (h + dy - padding, w + dx - padding) of the input, or 0 outside it (raw 0: before normalisation).

    Args:
        raw: [..., H, W, C] raw pixels, any dtype and device.
        uniform: [..., 3] draws on [0, 1), one row an image.
        padding: pixels of zero padding on each side; 0 for no crop.
        flip: whether to mirror; the crop does not depend on it.
        fill: what the padding holds.
    Returns:
        [..., H, W, C] of the dtype of `raw`.
    """
    height, width, channels = raw.shape[-3:]
    images, draws = raw.reshape(-1, height, width, channels), uniform.reshape(-1, 3)
    number = torch.arange(len(images), device=raw.device)
    if padding:
        padded = functional.pad(images, (0, 0, *(padding,) * 4), value=fill)
        top, left = (draws[:, :2] * (2 * padding + 1)).long().split(1, 1)
        row = number[:, None] * (height + 2 * padding) + top + torch.arange(height, device=raw.device)
        lines = padded.flatten().unfold(0, width * channels, channels)  # one begins at each pixel
        images = lines.index_select(0, (row * (width + 2 * padding) + left).flatten()).view(images.shape)
    if flip:
        both = torch.cat((images, images.flip(2)))
        images = both.index_select(0, number + (draws[:, 2] < 0.5) * len(images))
    return images.reshape(raw.shape)


def resize_and_crop(raw: Tensor, uniform: Tensor, factors: tuple[float, float], nearest: bool, fill: int) -> Tensor:
    """Resize each image by a random factor, then crop H x W pixels of it at random.

    A side of H becomes h = ceil(s H), s = low + (high - low) u_3. If h < H, p = (H - h) // 2 + 1 pixels of `fill` are
    put on either side, else p = 0. The crop starts at floor(u (h + 2 p - H)), with u_0 for rows and u_1 for columns.

    Args:
        raw: [..., H, W, C] pixels, any device.
        uniform: [..., 4] draws on [0, 1), one row an image.
        factors: low and high, above 0.
        nearest: copy pixels, as is right for classes; else interpolate linearly between their centres.
        fill: what the padding holds.
    Returns:
        [..., H, W, C] of the dtype of `raw` if nearest, else float32.
    """
    height, width, channels = raw.shape[-3:]
    images, draws = raw.reshape(-1, height, width, channels), uniform.reshape(-1, 4)
    scale = factors[0] + (factors[1] - factors[0]) * draws[:, 3:].double()
    for axis in (1, 2):
        side = images.shape[axis]
        resized = (scale * side).ceil().long()
        padding = torch.where(resized < side, (side - resized) // 2 + 1, 0)
        room = resized + 2 * padding - side
        start = (draws[:, axis - 1 : axis] * room).long() - padding
        place = torch.arange(side, device=raw.device) + start  # [n, side], in the resized image
        outside = (place < 0) | (place >= resized)
        images = _resampled(images, axis, place, resized, nearest).masked_fill(_along(outside, axis), fill)
    return images.reshape(raw.shape)


def _resampled(images: Tensor, axis: int, place: Tensor, resized: Tensor, nearest: bool) -> Tensor:
    """Images at the places [n, side] of an axis that was resized from `side` to `resized` [n, 1] pixels."""
    side = images.shape[axis]
    if nearest:
        return images.take_along_dim(_along((place * side // resized).clamp(0, side - 1), axis), axis)
    source = ((place + 0.5) * (side / resized) - 0.5).clamp(0, side - 1)
    first = source.long()
    low, high = (
        images.take_along_dim(_along(one, axis), axis).float() for one in (first, (first + 1).clamp(max=side - 1))
    )
    return torch.lerp(low, high, _along((source - first).float(), axis))


def _along(values: Tensor, axis: int) -> Tensor:
    """[n, side] as [n, side, 1, 1] for axis 1, [n, 1, side, 1] for axis 2."""
    return values[:, :, None, None] if axis == 1 else values[:, None, :, None]
