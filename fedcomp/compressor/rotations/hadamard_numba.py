"""`hadamard.apply` compiled for CPUs: three levels at a time, on parts of a row that fit the first cache."""

import numpy as np

from fedcomp.random.numba_jit import compiled

PART = 1 << 12
"""Entries (16 KiB) whose levels are done together before the strides grow beyond them."""


@compiled
def apply(values: np.ndarray, first: int, size: int, words: np.ndarray, scale: np.float32, inverse: bool) -> None:
    """In place on values [M, D] float32; `words` [M, ceil(n / 32)] int64, `scale` float32 1 / sqrt(n)."""
    part = min(size, PART)
    for row in range(values.shape[0]):
        piece = values[row, first : first + size]
        if not inverse:
            _flip(piece, words[row], scale)
        for start in range(0, size, part):
            _short_strides(piece[start : start + part])
        _long_strides(piece)
        if inverse:
            _flip(piece, words[row], scale)


@compiled
def _flip(x: np.ndarray, words: np.ndarray, scale: np.float32) -> None:
    """x <- scale * s * x."""
    for word in range(x.size // 32):
        bits = np.uint32(words[word])
        for bit in range(32):
            sign = np.int32((bits >> np.uint32(bit)) & np.uint32(1))
            x[32 * word + bit] *= np.float32(np.int32(2) * sign - np.int32(1)) * scale
    for place in range(x.size // 32 * 32, x.size):
        sign = np.int32((words[place // 32] >> (place % 32)) & 1)
        x[place] *= np.float32(np.int32(2) * sign - np.int32(1)) * scale


@compiled
def _short_strides(x: np.ndarray) -> None:
    """Levels within a part, as far as they come in threes.

    Here and below, strides are written as numbers: the compiler then knows that entries are distinct, and uses vectors.
    """
    if x.size >= 8:
        _three_levels(x, 1)
    if x.size >= 64:
        _three_levels(x, 8)
    if x.size >= 512:
        _three_levels(x, 64)
    if x.size >= 4096:
        _three_levels(x, 512)


@compiled
def _long_strides(x: np.ndarray) -> None:
    """All other levels."""
    stride = 1
    while 8 * stride <= min(x.size, PART):
        stride *= 8
    if x.size >= 8 * PART:
        _three_levels(x, PART)
        stride = 8 * PART
    while stride < x.size:
        _level(x, stride)
        stride *= 2


@compiled
def _level(x: np.ndarray, stride: int) -> None:
    for group in range(x.size // (2 * stride)):
        low = x[2 * stride * group : 2 * stride * group + stride]
        high = x[2 * stride * group + stride : 2 * stride * (group + 1)]
        for at in range(stride):
            a, b = low[at], high[at]
            low[at], high[at] = a + b, a - b


@compiled
def _three_levels(x: np.ndarray, stride: int) -> None:
    """Strides `stride`, 2 `stride` and 4 `stride`: every entry is read and written once."""
    for group in range(x.size // (8 * stride)):
        for at in range(8 * stride * group, 8 * stride * group + stride):
            a, b, c, d = x[at], x[at + stride], x[at + 2 * stride], x[at + 3 * stride]
            e, f, g, h = x[at + 4 * stride], x[at + 5 * stride], x[at + 6 * stride], x[at + 7 * stride]
            a, b, c, d, e, f, g, h = a + b, a - b, c + d, c - d, e + f, e - f, g + h, g - h
            a, b, c, d, e, f, g, h = a + c, b + d, a - c, b - d, e + g, f + h, e - g, f - h
            x[at], x[at + stride], x[at + 2 * stride], x[at + 3 * stride] = a + e, b + f, c + g, d + h
            x[at + 4 * stride], x[at + 5 * stride], x[at + 6 * stride], x[at + 7 * stride] = a - e, b - f, c - g, d - h
