"""Random crops and mirror images of raw image batches, as a pure function of uniform draws.

FedMRN's official code, on both CIFARs, crops 32x32 out of an image padded by 4 zero pixels, then mirrors
it with probability 1/2. Shape legend: any leading axes (clients, batch), H height, W width, C channels.
"""

from __future__ import annotations

import torch
from torch import Tensor

NUM_DRAWS = 3  # a sample: vertical shift, horizontal shift, mirror


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
    images = raw.reshape(-1, height, width, channels)
    draws = uniform.reshape(-1, NUM_DRAWS)
    shift = (draws[:, :2] * (2 * padding + 1)).long() - padding
    rows = torch.arange(height, device=raw.device) + shift[:, :1]
    columns = torch.arange(width, device=raw.device) + shift[:, 1:]
    if flip:
        columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    pixel = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
    image = torch.arange(len(images), device=raw.device)[:, None, None] * (height * width)
    moved = images.reshape(-1, channels)[image + pixel]
    inside = inside[..., None]
    return (moved * inside if fill == 0 else moved.masked_fill(~inside, fill)).reshape(raw.shape)
