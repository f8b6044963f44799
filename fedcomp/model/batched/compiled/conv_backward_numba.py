"""The backward pass of the blocks of `conv_numba.py`: gradients of weight, bias and input, one client a call.

A weight's gradient is 16 sums, over the numbers of a row whose place is the same modulo 16, joined pairwise; an input's
is a sum over (output channel, ky, kx) in that order. Each product is added by one fused multiply-add.

Shape legend: C input channels, O output channels, H height, W width, B batch.
"""

from typing import Any

import numpy as np
from numba import types

from fedcomp.model.batched.compiled.conv_numba import (
    GEOMETRY,
    MASKS,
    NUMBERS,
    SLACK,
    TILE,
    convolve,
    even,
    num_masks,
    pooled,
)
from fedcomp.model.batched.compiled.geometry import Geometry
from fedcomp.model.batched.compiled.tile_numba import LANES, WIDE, add_product, fixed, load, store, store_first, zeros
from fedcomp.model.batched.compiled.tile_values_numba import divide, select, sum_lanes
from fedcomp.random.numba_jit import compiled, inlined, separate

TAPS, FEW, MANY = (5, 3, 4) if WIDE else (2, 2, 3)
"""Taps in one tile of a weight gradient, and its channels: `FEW` where `MANY` do not divide what is left."""
SPAN = 512
"""Numbers of a row that a weight gradient goes over at once, so that they stay in the first cache."""


@compiled
def unpool(
    g: np.ndarray, masks: np.ndarray, gz: np.ndarray, y: int, first: int, strides: tuple[int, int, int], size: Geometry
) -> None:
    """The gradient at the convolution's outputs of one row of windows, from row y of g (O, H', W', B) and masks.

    Args:
        gz: it is written from place `first` on. strides: of gz, from channel to channel, row to row, column to column.
    """
    batch, window = size.batch, size.pool_h * size.pool_w
    height, width = pooled(size)
    share = np.float32(1 if size.maximum else window)
    mask = y * width * num_masks(size)
    for c in range(size.out):
        for x in range(width):
            place = ((c * height + y) * width + x) * batch
            target = first + c * strides[0] + x * size.pool_w * strides[2]
            for b in range(0, batch, LANES):
                value = divide(load(zeros(1, 1), g, place + b, LANES), share)
                for line in range(size.pool_h):
                    for column in range(size.pool_w):
                        part = select(masks[mask], value, zeros(1, 1))
                        store_first(part, gz, target + line * strides[1] + column * strides[2] + b, batch - b)
                        mask += 1
        mask += (height - 1) * width * num_masks(size)


_STRIDES = types.UniTuple(types.int64, 3)
_unpool = separate(NUMBERS, MASKS, NUMBERS, types.int64, types.int64, _STRIDES, GEOMETRY)(unpool)


@compiled
def input_gradient(
    gz: np.ndarray, strides: tuple[int, int, int], weight: np.ndarray, grad_x: np.ndarray, size: Geometry
) -> None:
    """The gradient grad_x (C, H, W, B) from gz, whose strides are as in `unpool`, and weight (O, C, KH, KW)."""
    batch, pad, channels = size.batch, size.pad, even(size.channels)
    height, width = pooled(size)
    area = size.kernel_h * size.kernel_w
    factors, offsets = np.zeros(size.out * area * channels, np.float32), np.zeros(channels, np.float32)
    for c in range(size.out):
        for channel in range(size.channels):
            for tap in range(area):
                factors[(c * area + tap) * channels + channel] = weight[(c * size.channels + channel) * area + tap]
    columns, across = size.width * batch, np.int64(TILE)
    tiles, back = np.empty(channels * TILE, np.float32), (strides[0], -strides[1], -batch)
    for y in range(size.height):
        ky0, ky1 = max(0, y + pad - height * size.pool_h + 1), min(size.kernel_h, y + pad + 1)
        for start in range(0, columns, TILE):
            j = min(start, columns - TILE)
            kx0 = max(0, j // batch + pad - width * size.pool_w + 1)
            kx1 = min(size.kernel_w, (j + TILE - 1) // batch + pad + 1)
            # Column x + pad - kx of the outputs, before which there are kernel_w - 1 - pad columns of zeros.
            place, taps = (y + pad) * strides[1] + (size.kernel_w - 1) * batch + j, (ky0, ky1, kx0, kx1)
            convolve(factors, offsets, size.out, taps, size.kernel_w, gz, place, back, tiles, np.int64(0), across)
            for c in range(size.channels):
                target = (c * size.height + y) * columns + j
                for lane in range(TILE):
                    grad_x[target + lane] = tiles[c * TILE + lane]


_input_gradient = separate(NUMBERS, _STRIDES, NUMBERS, NUMBERS, GEOMETRY)(input_gradient)


@inlined
def _correlate(
    gz: np.ndarray, first: int, across: int, x: np.ndarray, places: np.ndarray, top: int, count: int, sums: np.ndarray
) -> None:
    """sums (even(O), taps, 16) plus the products of `count` numbers of a row, gz[first + c across :], with all taps."""
    width = places.size * LANES
    channels, c = sums.size // width, 0
    while c < channels:
        few = (channels - c) % MANY != 0
        for tap in range(0, places.size, TAPS):
            place, at = c * width + tap * LANES, first + c * across
            starts = fixed(places[tap : tap + TAPS], TAPS)
            if few:
                three = load(zeros(FEW, TAPS), sums, place, width)
                store(_add_row(three, gz, at, across, x, starts, top, count, LANES), sums, place, width)
            else:
                four = load(zeros(MANY, TAPS), sums, place, width)
                store(_add_row(four, gz, at, across, x, starts, top, count, LANES), sums, place, width)
        c += FEW if few else MANY


@inlined
def _add_row(
    tile: Any, gz: np.ndarray, at: int, across: int, x: np.ndarray, starts: Any, top: int, count: int, step: int
) -> Any:
    """The tile plus the products of `count` numbers of a row, 16 at a time, with those of x, `step` apart."""
    for j in range(0, count, LANES):
        tile = add_product(tile, gz, at + j, across, x, starts, top)
        top += step
    return tile


@compiled
def backward(
    g: np.ndarray,
    masks: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    grad_weight: np.ndarray,
    grad_bias: np.ndarray,
    grad_x: np.ndarray,
    size: Geometry,
) -> None:
    """Gradients of a block's weight (O, C, KH, KW), bias (O) and input (C, H, W, B).

    Args:
        g: (O, H', W', B), and `SLACK` numbers more. masks, x, weight: as `forward` left and had them.
        grad_x: empty where it is not wanted.
    """
    batch, channels, before = size.batch, even(size.out), size.kernel_w - 1 - size.pad
    height, width = pooled(size)
    taps, columns = weight.size // size.out, width * size.pool_w * batch
    row = (size.width + 2 * size.pad) * batch
    places = np.zeros(-(-taps // TAPS) * TAPS, np.int64)  # of each tap in x
    for tap in range(taps):
        channel, ky = tap // (size.kernel_h * size.kernel_w), tap // size.kernel_w % size.kernel_h
        places[tap] = (channel * (size.height + 2 * size.pad) + ky) * row + tap % size.kernel_w * batch
    sums, lanes = np.zeros(channels * places.size * LANES, np.float32), np.zeros(channels * LANES, np.float32)
    ones = np.ones(LANES, np.float32)
    # The gradient at the convolution's outputs, with as many zeros beside each row as its input's gradient reaches: all
    # rows where that is wanted, else those of one row of windows at a time.
    line = (size.width + size.kernel_w - 1) * batch + SLACK
    num_rows = (height if grad_x.size else 1) * size.pool_h
    strides, gz = (num_rows * line, line, batch), np.zeros(channels * num_rows * line, np.float32)
    for y in range(height):
        first = (y * size.pool_h % num_rows) * line + before * batch
        _unpool(g, masks, gz, y, first, strides, size)
        for ky in range(size.pool_h):
            for c in range(0, channels, 2):
                pair = load(zeros(2, 1), lanes, c * LANES, LANES)
                pair = _add_row(pair, gz, first + ky * line + c * strides[0], strides[0], ones, (0,), 0, columns, 0)
                store(pair, lanes, c * LANES, LANES)
        for start in range(0, columns, SPAN):
            count = min(SPAN, columns - start)
            for ky in range(size.pool_h):
                top = (y * size.pool_h + ky) * row + start
                _correlate(gz, first + ky * line + start, strides[0], x, places, top, count, sums)
    for c in range(size.out):
        for tap in range(taps):
            grad_weight[c * taps + tap] = sum_lanes(load(zeros(1, 1), sums, (c * places.size + tap) * LANES, LANES))
        grad_bias[c] = sum_lanes(load(zeros(1, 1), lanes, c * LANES, LANES))
    if grad_x.size:
        _input_gradient(gz, strides, weight, grad_x, size)


backward_block = separate(NUMBERS, MASKS, *[NUMBERS] * 5, GEOMETRY)(backward)
