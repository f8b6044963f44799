"""The draws of `keys.py`, compiled by numba for large draws on a CPU, without a temporary tensor of [M, n] words.

The kernels use additions, multiplications, divisions, square roots and bit operations, none of them fused: every CPU
computes the same bits as the tensor code of `keys.py`. They start no threads and release Python's global lock (GIL),
since draws are made in worker threads. Importing this module takes half a second (numba).

numba recompiles a function only when its own file changes, so everything that a kernel calls is in this file.

Shape legend: M rows (clients), n draws a row.
"""

import numpy as np

from fedcomp.random.box_muller import ANGLE, COSINE, LN2, LOG, SINE, SQRT_HALF_BITS
from fedcomp.random.numba_jit import compiled
from fedcomp.random.philox import MULTIPLIERS, ROUNDS, WEYL

BLOCK = 1024
"""Words per block; a block stays in the first-level cache."""

_M0, _M1 = (np.uint64(factor) for factor in MULTIPLIERS)
_W0, _W1 = (np.uint32(step) for step in WEYL)
_HALF = np.uint64(32)
_BUCKETS = 4096


@compiled
def _fill(seed: int, row: int, first: int, words: np.ndarray) -> None:
    """words[:] = the words from counter `first` on, for key `seed` and client `row`; words.size is a multiple of 4."""
    key0, key1 = np.uint32(seed), np.uint32(np.uint64(seed) >> _HALF)
    low, high = np.uint32(row), np.uint32(np.uint64(row) >> _HALF)
    for i in range(words.size // 4):
        c0, c1, c2, c3 = np.uint32(first + i), np.uint32(0), low, high
        k0, k1 = key0, key1
        for _ in range(ROUNDS):
            even, odd = np.uint64(c0) * _M0, np.uint64(c2) * _M1
            c0, c1 = np.uint32(odd >> _HALF) ^ c1 ^ k0, np.uint32(odd)
            c2, c3 = np.uint32(even >> _HALF) ^ c3 ^ k1, np.uint32(even)
            k0, k1 = np.uint32(k0 + _W0), np.uint32(k1 + _W1)
        words[4 * i], words[4 * i + 1] = c0, c1
        words[4 * i + 2], words[4 * i + 3] = c2, c3


@compiled
def bits(seed: int, rows: np.ndarray, start: int, out: np.ndarray) -> None:
    """out [M, n] int64: `Key.bits`. `seed` and the [M] `rows` are uint64."""
    block = np.empty(BLOCK, np.uint32)
    num = out.shape[1]
    for m in range(out.shape[0]):
        for offset in range(0, num, BLOCK):
            end = min(BLOCK, num - offset)
            _fill(seed, rows[m], (start + offset) // 4, block[: (end + 3) // 4 * 4])
            for i in range(end):
                out[m, offset + i] = block[i]


@compiled
def uniform(seed: int, rows: np.ndarray, start: int, out: np.ndarray) -> None:
    """out [M, n] float32: `Key.uniform`."""
    block = np.empty(BLOCK, np.uint32)
    num = out.shape[1]
    for m in range(out.shape[0]):
        for offset in range(0, num, BLOCK):
            end = min(BLOCK, num - offset)
            _fill(seed, rows[m], (start + offset) // 4, block[: (end + 3) // 4 * 4])
            for i in range(end):
                out[m, offset + i] = np.float32(np.int32(block[i] >> np.uint32(8))) * np.float32(2.0**-24)


@compiled
def rademacher(seed: int, rows: np.ndarray, start: int, out: np.ndarray) -> None:
    """out [M, n] float32: `Key.rademacher`; `start` is a multiple of 128."""
    block = np.empty(BLOCK, np.uint32)
    num = out.shape[1]
    for m in range(out.shape[0]):
        for offset in range(0, num, 32 * BLOCK):
            end = min(32 * BLOCK, num - offset)
            _fill(seed, rows[m], (start + offset) // 128, block[: (end + 127) // 128 * 4])
            for word in range(end // 32):
                for bit in range(32):
                    sign = np.int32((block[word] >> np.uint32(bit)) & np.uint32(1))
                    out[m, offset + 32 * word + bit] = np.float32(np.int32(2) * sign - np.int32(1))
            for i in range(end // 32 * 32, end):
                sign = np.int32((block[i // 32] >> np.uint32(i % 32)) & np.uint32(1))
                out[m, offset + i] = np.float32(np.int32(2) * sign - np.int32(1))


@compiled
def normal(seed: int, rows: np.ndarray, start: int, out: np.ndarray) -> None:
    """out [M, n] float32: `Key.normal`, by the steps of `box_muller.box_muller`."""
    block, pairs = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.float32)
    num = out.shape[1]
    for m in range(out.shape[0]):
        for offset in range(0, num, BLOCK):
            end = min(BLOCK, num - offset)
            _fill(seed, rows[m], (start + offset) // 4, block[: (end + 3) // 4 * 4])
            for t in range((end + 1) // 2):
                radius = _radius(block[2 * t])
                first, second = _direction(np.int64(block[2 * t + 1]))
                pairs[2 * t], pairs[2 * t + 1] = radius * first, radius * second
            out[m, offset : offset + end] = pairs[:end]


@compiled
def _radius(word: int) -> float:
    """sqrt(-2 ln u)."""
    bits = np.float64((np.float64(word) + 0.5) * 2.0**-32).view(np.int64)
    exponent = (bits - SQRT_HALF_BITS) >> 52
    mantissa = np.int64(bits - (exponent << 52)).view(np.float64)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    return np.sqrt((_series(LOG, ratio * ratio) * ratio + np.float64(exponent) * LN2) * -2.0)


@compiled
def _direction(word: int) -> tuple[float, float]:
    """cos(2 pi v) and sin(2 pi v)."""
    quarter = (word + (1 << 29)) >> 30
    angle = np.float64(word - (quarter << 30)) * ANGLE
    square = angle * angle
    cosine, sine = _series(COSINE, square), _series(SINE, square) * angle
    odd = quarter & 1 == 1
    first = (sine if odd else cosine) * np.float64(1 - ((quarter + 1) & 2))
    second = (cosine if odd else sine) * np.float64(1 - (quarter & 2))
    return first, second


@compiled
def _series(coefficients: tuple[float, ...], x: float) -> float:
    total = coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


@compiled
def choice(seed: int, rows: np.ndarray, out_of: int, out: np.ndarray) -> None:
    """out [M, k] int64: `Key.choice`, the indices of the k smallest of `out_of` words, ascending.

    A first pass keeps the words up to a threshold, four standard deviations above the expected k-th smallest. In the
    rare row with fewer than k such words it keeps all. A histogram of the kept words finds the bucket of the k-th
    smallest, and only that bucket is sorted.
    """
    num = out.shape[1]
    if num == 0:
        return
    block, kept = np.empty(BLOCK, np.uint32), np.empty(out_of + 1, np.int64)
    slack = 4.0 * np.sqrt(num * (1.0 - num / out_of)) + 1.0
    for m in range(out.shape[0]):
        threshold = np.uint32(min((num + slack) / out_of, 1.0) * 4294967295.0)
        count = _keep(seed, rows[m], threshold, out_of, block, kept)
        if count < num:
            threshold = np.uint32(4294967295)
            count = _keep(seed, rows[m], threshold, out_of, block, kept)
        last = _smallest(kept[:count], num, threshold)
        num_chosen = 0
        for i in range(count):
            if kept[i] <= last:
                out[m, num_chosen] = kept[i] & 0x7FFFFFFF
                num_chosen += 1


@compiled
def _keep(seed: int, row: int, threshold: int, out_of: int, block: np.ndarray, kept: np.ndarray) -> int:
    """Put word << 31 | index of every word <= threshold into `kept`, in order; returns how many."""
    count = 0
    for offset in range(0, out_of, BLOCK):
        end = min(BLOCK, out_of - offset)
        _fill(seed, row, offset // 4, block[: (end + 3) // 4 * 4])
        for i in range(end):
            kept[count] = (np.int64(block[i]) << 31) | (offset + i)
            count += block[i] <= threshold
    return count


@compiled
def _smallest(kept: np.ndarray, num: int, threshold: int) -> int:
    """The num-th smallest entry of `kept`, whose entries are distinct."""
    shift = 31
    while np.int64(threshold) >> (shift - 31) >= _BUCKETS:
        shift += 1
    counts = np.zeros(_BUCKETS, np.int64)
    for entry in kept:
        counts[entry >> shift] += 1
    bucket, before = 0, 0
    while before + counts[bucket] < num:
        before += counts[bucket]
        bucket += 1
    entries = np.empty(counts[bucket], np.int64)
    num_entries = 0
    for entry in kept:
        if entry >> shift == bucket:
            entries[num_entries] = entry
            num_entries += 1
    entries.sort()
    return entries[num - before - 1]
