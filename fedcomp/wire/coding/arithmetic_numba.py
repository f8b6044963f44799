"""The range coder of `arithmetic.py`, compiled: it is sequential, so tensor operations cannot do it.

The interval [low, low + range) has 56 bits, and range stays above 2^40; 16 bits are written at a time.
"""

import numpy as np

from fedcomp.random.numba_jit import compiled

_FULL, _SMALL = 1 << 56, 1 << 40


def encode(values: np.ndarray, thresholds: np.ndarray, length: int) -> np.ndarray:
    """The `length` bits (uint8 of 0 and 1) of values [n] uint8, ones having probability thresholds [n] / 2^16."""
    words = np.zeros(length // 16 + 6, np.int64)
    _encode(values, thresholds, length, words)
    return np.unpackbits(words.astype(">u2").view(np.uint8))[:length]


def decode(bits: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The [n] uint8 values whose code is at the start of `bits` (uint8 of 0 and 1), extended with zeros."""
    packed = np.packbits(bits)
    words = np.zeros(len(packed) // 2 + 1, np.int64)
    padded = np.zeros(2 * len(words), np.uint8)
    padded[: len(packed)] = packed
    words[:] = padded.view(">u2")
    values = np.empty(len(thresholds), np.uint8)
    _decode(words, thresholds, values)
    return values


@compiled
def _carry(words: np.ndarray, position: int) -> None:
    """Add one to the number whose last word is at `position`."""
    while words[position] == 0xFFFF:
        words[position] = 0
        position -= 1
    words[position] += 1


@compiled
def _encode(values: np.ndarray, thresholds: np.ndarray, length: int, words: np.ndarray) -> None:
    low, size, position = np.int64(0), np.int64(_FULL), 0
    for entry in range(values.size):
        bound = (size >> 16) * np.int64(thresholds[entry])
        if values[entry]:
            size = bound
        else:
            low += bound
            size -= bound
        if low >= _FULL:
            low -= _FULL
            _carry(words, position - 1)
        while size <= _SMALL:
            words[position] = low >> 40
            position += 1
            low = (low & (_SMALL - 1)) << 16
            size <<= 16
    below = np.int64(max(56 - (length - 16 * position), 0))
    low = ((low + (np.int64(1) << below) - 1) >> below) << below  # the first number in the interval of that length
    if low >= _FULL:
        low -= _FULL
        _carry(words, position - 1)
    for shift in (40, 24, 8):
        words[position] = (low >> shift) & 0xFFFF
        position += 1
    words[position] = (low & 0xFF) << 8


@compiled
def _decode(words: np.ndarray, thresholds: np.ndarray, values: np.ndarray) -> None:
    code, size, position = np.int64(0), np.int64(_FULL), 0
    for _ in range(3):
        code = (code << 16) | (words[position] if position < words.size else 0)
        position += 1
    ahead = words[position] if position < words.size else 0
    code = (code << 8) | (ahead >> 8)  # 56 bits; the other 8 of this word come next
    for entry in range(values.size):
        bound = (size >> 16) * np.int64(thresholds[entry])
        if code < bound:
            values[entry] = 1
            size = bound
        else:
            values[entry] = 0
            code -= bound
            size -= bound
        while size <= _SMALL:
            after = words[position + 1] if position + 1 < words.size else 0
            code = (code << 16) | ((ahead & 0xFF) << 8) | (after >> 8)
            ahead, position = after, position + 1
            size <<= 16
