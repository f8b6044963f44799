"""Convolutions of few channels with ReLU and pooling, compiled for a CPU; one client a call.

The batch is the innermost axis in memory, so a row of an image is one long vector: output column j of every sample
reads input column j + kx, and lanes are filled whatever the number of channels. Tiles of the output (some channels, 64
neighbouring numbers of a row) stay in registers. ReLU and pooling read the rows of a convolution while these are in the
cache; of them the backward pass needs one bit a number.

Every output is the same chain of fused multiply-adds whatever the processor's vectors hold: bias + sum over (input
channel, ky, kx) in that order. So every CPU computes the same bits, and tiles may have any size.

All arrays are flat float32, but for uint16 `masks` (O, H', W', 16 samples each, positions of a window): bit i is set
where the gradient of sample i goes to that position.

Shape legend: C input channels, O output channels, H height, W width, B batch.
"""

from typing import Any

import numpy as np
from numba import types

from fedcomp.model.batched.compiled.geometry import Geometry
from fedcomp.model.batched.compiled.tile_numba import (
    LANES,
    SLACK,
    WIDE,
    add_scaled,
    broadcast,
    load,
    store,
    store_first,
    zeros,
)
from fedcomp.model.batched.compiled.tile_values_numba import add, divide, larger_or_nan, positive_or_nan, select
from fedcomp.random.numba_jit import compiled, inlined, separate

COLUMNS, MOST, SOME = (4, 6, 4) if WIDE else (1, 6, 4)
"""Vectors of a row in one tile of outputs, and the channels in it: `MOST` where `SOME` do not divide what is left."""
TILE = COLUMNS * LANES
"""Numbers of a row in one tile of outputs; a row holds at least so many."""


NUMBERS, MASKS = types.float32[::1], types.uint16[::1]
GEOMETRY = types.NamedUniTuple(types.int64, len(Geometry._fields), Geometry)
"""numba's types of the arguments."""


@compiled
def even(channels: int) -> int:
    """Channels as tiles cover them: an even number, at least 4."""
    return max(4, channels + channels % 2)


@compiled
def pooled(size: Geometry) -> tuple[int, int]:
    """H' and W', height and width of a block's output."""
    height = (size.height + 2 * size.pad - size.kernel_h + 1) // size.pool_h
    return height, (size.width + 2 * size.pad - size.kernel_w + 1) // size.pool_w


@compiled
def num_masks(size: Geometry) -> int:
    """Numbers that `masks` has for one pixel of a block's output."""
    return -(-size.batch // LANES) * size.pool_h * size.pool_w


@compiled
def pack(x: np.ndarray, real: np.ndarray, out: np.ndarray, size: Geometry) -> None:
    """out (C, H + 2 pad, W + 2 pad, B) from the samples `real` of x (samples, H * W * C), with zeros around it
    and after it. Places beyond those of the samples are zeros too.
    """
    batch, pad, channels = size.batch, size.pad, size.channels
    row, plane = (size.width + 2 * pad) * batch, (size.height + 2 * pad) * (size.width + 2 * pad) * batch
    for place in range(channels * plane + SLACK):
        out[place] = 0
    for y in range(size.height):  # a row of all samples stays in the first cache
        for b in range(real.size):
            line = x[real[b], y * size.width * channels : (y + 1) * size.width * channels]
            for channel in range(channels):
                place = channel * plane + (y + pad) * row + pad * batch + b
                for column in range(size.width):
                    out[place + column * batch] = line[column * channels + channel]


@compiled
def pool(rows: np.ndarray, out: np.ndarray, masks: np.ndarray, y: int, size: Geometry) -> None:
    """ReLU and pooling of one row of windows, from `rows` (O, pool_h, columns) to row y of out and masks.

    As in torch: ReLU's gradient is 0 where z <= 0; the first of equal numbers is the largest, and a NaN is larger than
    any number.
    """
    batch, window = size.batch, size.pool_h * size.pool_w
    height, width = pooled(size)
    columns, wide = width * size.pool_w * batch, width + 2 * size.margin
    mask = y * width * num_masks(size)
    for c in range(size.out):
        for x in range(width):
            target = ((c * (height + 2 * size.margin) + y + size.margin) * wide + x + size.margin) * batch
            for b in range(0, batch, LANES):
                value = zeros(1, 1)
                for line in range(size.pool_h):
                    for column in range(size.pool_w):
                        place = (c * size.pool_h + line) * columns + (x * size.pool_w + column) * batch + b
                        z = load(zeros(1, 1), rows, place, LANES)
                        position = line * size.pool_w + column
                        bits = np.uint16(0xFFFF)
                        if not size.maximum:
                            if size.relu:
                                bits = positive_or_nan(z)
                                z = select(bits, z, zeros(1, 1))
                            value = add(value, z)
                        elif position == 0:
                            value = z
                        else:
                            bits = larger_or_nan(z, value)
                            value = select(bits, z, value)
                            for earlier in range(mask, mask + position):
                                masks[earlier] &= ~bits
                        masks[mask + position] = bits
                if size.maximum and size.relu:
                    bits = positive_or_nan(value)
                    value = select(bits, value, zeros(1, 1))
                    for position in range(mask, mask + window):
                        masks[position] &= bits
                elif window > 1 and not size.maximum:
                    value = divide(value, np.float32(window))
                store_first(value, out, target + b, batch - b)
                mask += window
        mask += (height - 1) * width * num_masks(size)


_pool = separate(NUMBERS, NUMBERS, MASKS, types.int64, GEOMETRY)(pool)


@compiled
def forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, out: np.ndarray, masks: np.ndarray, size: Geometry
) -> None:
    """out (O, H' + 2 margin, W' + 2 margin, B) and masks of a block.

    x: (C, H + 2 pad, W + 2 pad, B). weight: (O, C, KH, KW). bias: (O).
    """
    batch, channels = size.batch, even(size.out)
    height, width = pooled(size)
    factors, offsets = np.zeros(weight.size // size.out * channels, np.float32), np.zeros(channels, np.float32)
    for c in range(size.out):
        offsets[c] = bias[c]
        for tap in range(weight.size // size.out):
            factors[tap * channels + c] = weight[c * (weight.size // size.out) + tap]
    row = (size.width + 2 * size.pad) * batch
    strides = (size.height + 2 * size.pad) * row, row, batch
    none = np.int64(0)  # not a literal, for which numba would compile what it calls anew
    taps = none, size.kernel_h, none, size.kernel_w
    columns = width * size.pool_w * batch
    rows = np.empty(channels * size.pool_h * columns + SLACK, np.float32)
    for place in range(0 if size.margin else out.size - SLACK, out.size):
        out[place] = 0
    for y in range(height):
        for line in range(size.pool_h):
            top = (y * size.pool_h + line) * row
            for start in range(0, columns, TILE):
                j = min(start, columns - TILE)  # the last tile computes some numbers again
                place, across = line * columns + j, size.pool_h * columns
                convolve(factors, offsets, size.channels, taps, size.kernel_w, x, top + j, strides, rows, place, across)
        _pool(rows, out, masks, y, size)


@inlined
def convolve(
    factors: np.ndarray,
    offsets: np.ndarray,
    channels: int,
    taps: tuple[int, int, int, int],
    kernel_w: int,
    x: np.ndarray,
    place: int,
    strides: tuple[int, int, int],
    out: np.ndarray,
    target: int,
    across: int,
) -> None:
    """`TILE` numbers of a row of every output channel: out[target + c across :] from x[place :].

    factors: (channels, KH, KW, O). offsets: (O). taps: ky from, to; kx from, to. strides: of channel, ky, kx in x.
    """
    c = np.int64(0)
    while c < offsets.size:
        if (offsets.size - c) % SOME == 0:
            some = broadcast(zeros(SOME, COLUMNS), offsets, c)
            some = _add_taps(some, factors, offsets.size, c, channels, taps, kernel_w, x, place, strides)
            store(some, out, target + c * across, across)
            c += SOME
        else:
            most = broadcast(zeros(MOST, COLUMNS), offsets, c)
            most = _add_taps(most, factors, offsets.size, c, channels, taps, kernel_w, x, place, strides)
            store(most, out, target + c * across, across)
            c += MOST


@inlined
def _add_taps(
    tile: Any,
    factors: np.ndarray,
    num_out: int,
    c: int,
    channels: int,
    taps: tuple[int, int, int, int],
    kernel_w: int,
    x: np.ndarray,
    place: int,
    strides: tuple[int, int, int],
) -> Any:
    ky0, ky1, kx0, kx1 = taps
    plane, row, step = strides
    width, area = kernel_w * num_out, factors.size // channels
    for channel in range(channels):
        at, source = channel * area + ky0 * width + kx0 * num_out + c, place + channel * plane + ky0 * row + kx0 * step
        for _ in range(ky1 - ky0):
            tap, number = at, source
            for _ in range(kx1 - kx0):
                tile = add_scaled(tile, factors, tap, 1, x, number)
                tap += num_out
                number += step
            at += width
            source += row
    return tile


forward_block = separate(*[NUMBERS] * 4, MASKS, GEOMETRY)(forward)
