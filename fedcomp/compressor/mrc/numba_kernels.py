"""`reference.py` compiled for CPUs, with the same bits: candidates are computed and scored block by block, not stored.

The kernels use integer operations and one conversion of an integer to float32, so every CPU computes the same bits.
They start no threads and release Python's global lock (GIL). The random words of one group of coordinates,
and the scores of one block, stay in the first-level cache.

numba recompiles a function only when its own file changes, so everything that a kernel calls is in this file.

Shape legend: M rows (clients), P priors (1 or M), S streams of candidates (1 or M), n coordinates, B blocks, K = n_IS
candidates, R repetitions.
"""

import numpy as np

from fedcomp.random.numba_jit import compiled, inlined
from fedcomp.random.philox import MULTIPLIERS, ROUNDS, WEYL

_M0, _M1 = (np.uint64(factor) for factor in MULTIPLIERS)
_W0, _W1 = (np.uint32(step) for step in WEYL)
_HALF = np.uint64(32)
COLUMNS = 10
"""Maximum rows that are scored against one set of candidates at once."""


@compiled
def encode(
    thresholds: np.ndarray,
    log_odds: np.ndarray,
    offsets: np.ndarray,
    first: int,
    keys: np.ndarray,
    noise_keys: np.ndarray,
    gumbel: np.ndarray,
    layout: np.ndarray,
    out: np.ndarray,
) -> None:
    """out [M, R, B]: the chosen candidates of blocks `first`, ..., with `offsets` [B + 1] int64.

    `thresholds` [P, n] uint32 and `log_odds` [M, n] int32 are of the coordinates offsets[0], ..., offsets[B] - 1.
    `keys` [S, 2] and `noise_keys` [M, 2] are uint32; `layout` is (K, bits of a uniform, domain, domain of the noise,
    shift of the noise).
    """
    num, bits, domain, noise_domain, shift = layout[0], layout[1], layout[2], layout[3], layout[4]
    rows, num_columns = log_odds.shape[0], 1
    if keys.shape[0] == 1 and thresholds.shape[0] == 1:
        num_columns = min(rows, COLUMNS)
    words = np.empty((4, num), np.uint32)
    scores, noise = np.empty((num_columns, num), np.int32), np.empty((num_columns, 4, num), np.uint32)
    steps, below, totals = np.empty((num_columns, 16), np.int32), np.empty(16, np.uint32), np.empty(num, np.int32)
    for repetition in range(out.shape[1]):
        for row in range(0, rows, num_columns):
            columns = min(num_columns, rows - row)
            key, prior = keys[row % keys.shape[0]], thresholds[row % thresholds.shape[0]]
            for block in range(offsets.size - 1):
                begin, end = offsets[block] - offsets[0], offsets[block + 1] - offsets[0]
                scores[:columns] = 0
                _score(
                    prior, log_odds[row : row + columns], offsets[0], begin, end, bits, key, repetition, domain,
                    words, steps, below, scores,
                )  # fmt: skip
                for column in range(columns):
                    at = first + block
                    if block == 0 or at % 4 == 0:
                        _words(at // 4, repetition, noise_domain, noise_keys[row + column], noise[column])
                    chosen = _choose(scores[column], noise[column, at % 4], gumbel, shift, totals)
                    out[row + column, repetition, block] = chosen


@inlined
def _block(counter: int, number: int, repetition: int, domain: int, key: np.ndarray) -> tuple[np.uint32, ...]:
    """The four words Philox4x32-10(key; counter, number, repetition, domain)."""
    c0, c1, c2, c3 = np.uint32(counter), np.uint32(number), np.uint32(repetition), np.uint32(domain)
    k0, k1 = key[0], key[1]
    for _ in range(ROUNDS):
        even, odd = np.uint64(c0) * _M0, np.uint64(c2) * _M1
        c0, c1 = np.uint32(odd >> _HALF) ^ c1 ^ k0, np.uint32(odd)
        c2, c3 = np.uint32(even >> _HALF) ^ c3 ^ k1, np.uint32(even)
        k0, k1 = np.uint32(k0 + _W0), np.uint32(k1 + _W1)
    return c0, c1, c2, c3


@compiled
def _words(counter: int, repetition: int, domain: int, key: np.ndarray, words: np.ndarray) -> None:
    """words[:, i] = Philox4x32-10(key; counter, i, repetition, domain)."""
    for i in range(words.shape[1]):
        words[0, i], words[1, i], words[2, i], words[3, i] = _block(counter, i, repetition, domain, key)


@compiled
def _score(
    prior: np.ndarray,
    log_odds: np.ndarray,
    base: int,
    begin: int,
    end: int,
    bits: int,
    key: np.ndarray,
    repetition: int,
    domain: int,
    words: np.ndarray,
    steps: np.ndarray,
    below: np.ndarray,
    scores: np.ndarray,
) -> None:
    """scores[c, i] += sum of log_odds[c, e] over begin <= e < end where candidate i has a one."""
    size = 128 // bits
    for group in range((base + begin) // size, (base + end - 1) // size + 1):
        _words(group, repetition, domain, key, words)
        for part in range(size):
            e = group * size + part - base
            inside = begin <= e < end
            threshold = prior[e] if inside else np.uint32(0)
            for column in range(log_odds.shape[0]):
                steps[column, part] = log_odds[column, e] if inside else 0
            below[part] = threshold
        if bits == 8:
            _weigh(words, below, steps[: log_odds.shape[0]], scores)
        else:
            _weigh_parts(words, bits, below, steps[: log_odds.shape[0]], scores)


@compiled
def _weigh(words: np.ndarray, below: np.ndarray, steps: np.ndarray, scores: np.ndarray) -> None:
    """scores[c, i] += sum of steps[c, j] where byte j of words[:, i] is below below[j].

    Three columns at a time share the comparisons; with more arrays the compiler does not vectorise the loop.
    """
    for column in range(0, steps.shape[0] - 2, 3):
        for part in range(0, 16, 4):
            _weigh3(words[part // 4], part, below, column, steps, scores)
    for column in range(steps.shape[0] // 3 * 3, steps.shape[0]):
        for part in range(0, 16, 8):
            _weigh1(words[part // 4], words[part // 4 + 1], part, below, steps[column], scores[column])


@compiled
def _weigh3(word: np.ndarray, part: int, below: np.ndarray, column: int, steps: np.ndarray, scores: np.ndarray) -> None:
    """Four bytes from `part` on, for three columns."""
    t0, t1, t2, t3 = below[part], below[part + 1], below[part + 2], below[part + 3]
    a, b, c = steps[column], steps[column + 1], steps[column + 2]
    a0, a1, a2, a3 = a[part], a[part + 1], a[part + 2], a[part + 3]
    b0, b1, b2, b3 = b[part], b[part + 1], b[part + 2], b[part + 3]
    c0, c1, c2, c3 = c[part], c[part + 1], c[part + 2], c[part + 3]
    first, second, third = scores[column], scores[column + 1], scores[column + 2]
    none, cut = np.int32(0), np.uint32(255)
    for i in range(word.size):
        w = word[i]
        one0, one1 = (w & cut) < t0, ((w >> np.uint32(8)) & cut) < t1
        one2, one3 = ((w >> np.uint32(16)) & cut) < t2, (w >> np.uint32(24)) < t3
        x, y, z = first[i], second[i], third[i]
        x, y = np.int32(x + (a0 if one0 else none)), np.int32(y + (b0 if one0 else none))
        x, y = np.int32(x + (a1 if one1 else none)), np.int32(y + (b1 if one1 else none))
        x, y = np.int32(x + (a2 if one2 else none)), np.int32(y + (b2 if one2 else none))
        x, y = np.int32(x + (a3 if one3 else none)), np.int32(y + (b3 if one3 else none))
        z = np.int32(np.int32(z + (c0 if one0 else none)) + (c1 if one1 else none))
        z = np.int32(np.int32(z + (c2 if one2 else none)) + (c3 if one3 else none))
        first[i], second[i], third[i] = x, y, z


@compiled
def _weigh1(
    low: np.ndarray, high: np.ndarray, part: int, below: np.ndarray, steps: np.ndarray, scores: np.ndarray
) -> None:
    """Eight bytes from `part` on, for one column."""
    t0, t1, t2, t3 = below[part], below[part + 1], below[part + 2], below[part + 3]
    t4, t5, t6, t7 = below[part + 4], below[part + 5], below[part + 6], below[part + 7]
    d0, d1, d2, d3 = steps[part], steps[part + 1], steps[part + 2], steps[part + 3]
    d4, d5, d6, d7 = steps[part + 4], steps[part + 5], steps[part + 6], steps[part + 7]
    none, cut = np.int32(0), np.uint32(255)
    for i in range(scores.size):
        w, v = low[i], high[i]
        total = np.int32(scores[i] + (d0 if (w & cut) < t0 else none))
        total = np.int32(total + (d1 if ((w >> np.uint32(8)) & cut) < t1 else none))
        total = np.int32(total + (d2 if ((w >> np.uint32(16)) & cut) < t2 else none))
        total = np.int32(total + (d3 if (w >> np.uint32(24)) < t3 else none))
        total = np.int32(total + (d4 if (v & cut) < t4 else none))
        total = np.int32(total + (d5 if ((v >> np.uint32(8)) & cut) < t5 else none))
        total = np.int32(total + (d6 if ((v >> np.uint32(16)) & cut) < t6 else none))
        scores[i] = np.int32(total + (d7 if (v >> np.uint32(24)) < t7 else none))


@compiled
def _weigh_parts(words: np.ndarray, bits: int, below: np.ndarray, steps: np.ndarray, scores: np.ndarray) -> None:
    """As `_weigh`, of parts of 16 or 32 bits: two at a time for three columns, and four for one."""
    each, none = 32 // bits, np.int32(0)
    cut, high = np.uint32(0xFFFFFFFF) >> np.uint32(32 - bits), np.uint32(32 - bits)
    for column in range(0, steps.shape[0] - 2, 3):
        for part in range(0, 128 // bits, 2):
            _weigh_pair3(words[part // each], words[(part + 1) // each], bits, part, below, column, steps, scores)
    for column in range(steps.shape[0] // 3 * 3, steps.shape[0]):
        total = scores[column]
        for part in range(0, 128 // bits, 4):
            w0, w1 = words[part // each], words[(part + 1) // each]
            w2, w3 = words[(part + 2) // each], words[(part + 3) // each]
            t0, t1, t2, t3 = below[part], below[part + 1], below[part + 2], below[part + 3]
            d0, d1 = steps[column, part], steps[column, part + 1]
            d2, d3 = steps[column, part + 2], steps[column, part + 3]
            for i in range(total.size):
                low = np.int32((d0 if (w0[i] & cut) < t0 else none) + (d1 if (w1[i] >> high) < t1 else none))
                rest = np.int32((d2 if (w2[i] & cut) < t2 else none) + (d3 if (w3[i] >> high) < t3 else none))
                total[i] = np.int32(total[i] + np.int32(low + rest))


@compiled
def _weigh_pair3(
    low: np.ndarray,
    high: np.ndarray,
    bits: int,
    part: int,
    below: np.ndarray,
    column: int,
    steps: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Two parts from `part` on, for three columns."""
    none, cut, shift = np.int32(0), np.uint32(0xFFFFFFFF) >> np.uint32(32 - bits), np.uint32(32 - bits)
    t0, t1 = below[part], below[part + 1]
    a0, b0, c0 = steps[column, part], steps[column + 1, part], steps[column + 2, part]
    a1, b1, c1 = steps[column, part + 1], steps[column + 1, part + 1], steps[column + 2, part + 1]
    x, y, z = scores[column], scores[column + 1], scores[column + 2]
    for i in range(low.size):
        one0, one1 = (low[i] & cut) < t0, (high[i] >> shift) < t1
        x[i] = np.int32(np.int32(x[i] + (a0 if one0 else none)) + (a1 if one1 else none))
        y[i] = np.int32(np.int32(y[i] + (b0 if one0 else none)) + (b1 if one1 else none))
        z[i] = np.int32(np.int32(z[i] + (c0 if one0 else none)) + (c1 if one1 else none))


@compiled
def _choose(scores: np.ndarray, noise: np.ndarray, gumbel: np.ndarray, shift: int, totals: np.ndarray) -> int:
    """argmax_i scores[i] + Gumbel noise of word i as in `fixed_point.gumbel`; ties go to the smaller index."""
    half, right = np.uint32(gumbel.size // 2), np.int32(shift)
    for i in range(totals.size):
        word = noise[i]
        t = np.float32(np.int32((word & np.uint32(0x7FFFFFFF)) | np.uint32(1)))
        position = np.uint32(t.view(np.int32)) - np.uint32(0x3F800000)
        at = np.uint32(np.uint32(position >> np.uint32(15)) + half * np.uint32(word >> np.uint32(31)))
        low = gumbel[at]
        rise = np.int32(gumbel[at + np.uint32(1)] - low) * np.int32(position & np.uint32(0x7FFF))
        totals[i] = scores[i] + (np.int32(low + np.int32(np.int32(rise) >> np.int32(15))) >> right)
    best = totals[0]
    for i in range(totals.size):
        best = max(best, totals[i])
    chosen = 0
    while totals[chosen] != best:
        chosen += 1
    return chosen


@compiled
def decode(
    indices: np.ndarray,
    thresholds: np.ndarray,
    offsets: np.ndarray,
    keys: np.ndarray,
    bits: int,
    domain: int,
    out: np.ndarray,
) -> None:
    """out [M or 1, n] int32 += the bits of the candidates `indices` [M, R, B] int32; other arguments as in `encode`."""
    size = 128 // bits
    longest = 1
    for block in range(offsets.size - 1):
        longest = max(longest, offsets[block + 1] - offsets[block])
    words = np.empty((longest // size + 2, 4), np.uint32)
    for row in range(indices.shape[0]):
        key, prior, into = keys[row % keys.shape[0]], thresholds[row % thresholds.shape[0]], out[row % out.shape[0]]
        for repetition in range(indices.shape[1]):
            for block in range(offsets.size - 1):
                begin, end = offsets[block] - offsets[0], offsets[block + 1] - offsets[0]
                first, last = offsets[block] // size, (offsets[block + 1] - 1) // size + 1
                some = words[: last - first]
                _candidate(first, indices[row, repetition, block], repetition, domain, key, some)
                flat, skipped = some.reshape(-1), offsets[block] - first * size
                _count(flat, bits, skipped, prior[begin:end], into[begin:end])


@compiled
def _candidate(first: int, number: int, repetition: int, domain: int, key: np.ndarray, words: np.ndarray) -> None:
    """words[g] = Philox4x32-10(key; first + g, number, repetition, domain)."""
    for group in range(words.shape[0]):
        block = _block(first + group, number, repetition, domain, key)
        words[group, 0], words[group, 1], words[group, 2], words[group, 3] = block


@compiled
def _count(words: np.ndarray, bits: int, skipped: int, prior: np.ndarray, into: np.ndarray) -> None:
    """into[e] += part skipped + e of the words < prior[e]."""
    each, cut = 32 // bits, np.uint32((1 << bits) - 1)
    for e in range(into.size):
        part = skipped + e
        into[e] += ((words[part // each] >> np.uint32(bits * (part % each))) & cut) < prior[e]
