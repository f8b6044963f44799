"""Sums in the order of torch's on a CPU, so that they have its bits.

torch adds up at most 16 numbers before they join the rest of a sum. Along the last axis of a tensor it makes 8 sums of
neighbours, of which each is four sums where there are numbers enough.
"""

import numpy as np
from numba import types

from fedcomp.random.numba_jit import separate

SUM_LANES, SUM_COLUMNS, SUM_BLOCK = 8, 32, 16
"""Neighbours along the axis that are added to 8 sums; neighbouring sums that go side by side; numbers added up before
they join the rest."""
_NUMBERS = types.float32[::1]


@separate(_NUMBERS, types.int64, types.int64, types.int64)
def interleaved(numbers: np.ndarray, start: int, stride: int, num: int) -> np.float32:
    """The sum of every `stride`-th number as four sums, of those 0, 1, 2 and 3 modulo 4, which are then added up."""
    total = np.float32(0)
    for part in range(4):
        whole = block = np.float32(0)
        for group in range(num // 4):
            block += numbers[start + (4 * group + part) * stride]
            if group % SUM_BLOCK == SUM_BLOCK - 1:
                whole += block
                block = np.float32(0)
        block += whole
        if part == 0:
            for tail in range(num // 4 * 4, num):
                block += numbers[start + tail * stride]
        total = block if part == 0 else total + block
    return total


@separate(_NUMBERS, types.int64, types.int64)
def total_of(numbers: np.ndarray, start: int, num: int) -> np.float32:
    """The sum of numbers[start : start + num] in the order of torch's sums over the last axis."""
    whole = num // SUM_LANES
    if not whole:
        return interleaved(numbers, start, 1, num)
    total = np.float32(0)
    for b in range(whole * SUM_LANES, num):
        total += numbers[start + b]
    for lane in range(SUM_LANES):
        if whole >= 4:
            total += interleaved(numbers, start + lane, SUM_LANES, whole)
        else:
            column = np.float32(0)
            for vector in range(whole):
                column += numbers[start + lane + vector * SUM_LANES]
            total += column
    return total
