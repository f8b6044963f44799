"""`hadamard.apply` compiled for CPUs: three or two levels at a time, on parts of a row that fit the first cache."""

from __future__ import annotations

import numpy as np

from fedcomp.random.numba_jit import compiled

PART = 1 << 13
"""Entries (32 KiB) whose levels are done together before the strides grow beyond them."""


@compiled
def apply(values: np.ndarray, first: int, size: int, words: np.ndarray, scale: np.float32, inverse: bool) -> None:
    """In place on values [M, D] float32; `words` [M, ceil(n / 32)] int64, `scale` float32 1 / sqrt(n)."""
    for row in range(values.shape[0]):
        piece = values[row, first : first + size]
        if not inverse:
            _flip(piece, words[row], scale)
        part = min(size, PART)
        for start in range(0, size, part):
            _first_levels(piece[start : start + part])
            _levels(piece[start : start + part], 32 if size >= 32 else 8 if size >= 8 else 1)
        _levels(piece, part)
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
def _first_levels(x: np.ndarray) -> None:
    """Strides 1, 2, 4 within 8 neighbours; then 8 and 16, since short strides compile better if fixed."""
    for group in range(x.size // 8):
        at = 8 * group
        a0, a1, a2, a3 = x[at], x[at + 1], x[at + 2], x[at + 3]
        a4, a5, a6, a7 = x[at + 4], x[at + 5], x[at + 6], x[at + 7]
        a0, a1, a2, a3 = a0 + a1, a0 - a1, a2 + a3, a2 - a3
        a4, a5, a6, a7 = a4 + a5, a4 - a5, a6 + a7, a6 - a7
        a0, a1, a2, a3 = a0 + a2, a1 + a3, a0 - a2, a1 - a3
        a4, a5, a6, a7 = a4 + a6, a5 + a7, a4 - a6, a5 - a7
        x[at], x[at + 1], x[at + 2], x[at + 3] = a0 + a4, a1 + a5, a2 + a6, a3 + a7
        x[at + 4], x[at + 5], x[at + 6], x[at + 7] = a0 - a4, a1 - a5, a2 - a6, a3 - a7
    for group in range(x.size // 32):
        for at in range(32 * group, 32 * group + 8):
            a, b, c, d = x[at], x[at + 8], x[at + 16], x[at + 24]
            a, b, c, d = a + b, a - b, c + d, c - d
            x[at], x[at + 8], x[at + 16], x[at + 24] = a + c, b + d, a - c, b - d


@compiled
def _levels(x: np.ndarray, stride: int) -> None:
    """All levels of x from `stride` on, two at a time."""
    while 4 * stride <= x.size:
        quads = x.reshape(x.size // (4 * stride), 4, stride)
        for group in range(quads.shape[0]):
            for at in range(stride):
                a, b, c, d = quads[group, 0, at], quads[group, 1, at], quads[group, 2, at], quads[group, 3, at]
                a, b, c, d = a + b, a - b, c + d, c - d
                quads[group, 0, at], quads[group, 1, at] = a + c, b + d
                quads[group, 2, at], quads[group, 3, at] = a - c, b - d
        stride *= 4
    while 2 * stride <= x.size:
        pairs = x.reshape(x.size // (2 * stride), 2, stride)
        for group in range(pairs.shape[0]):
            for at in range(stride):
                a, b = pairs[group, 0, at], pairs[group, 1, at]
                pairs[group, 0, at], pairs[group, 1, at] = a + b, a - b
        stride *= 2
