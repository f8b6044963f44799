"""Bits of a row in the code of `run_length.py`, in one compiled pass, for long rows on a CPU.

Importing this module takes half a second (numba).
"""

import numpy as np
import torch

from fedcomp.random.numba_jit import compiled
from fedcomp.wire.coding.elias import omega_bits

_SHORT = omega_bits(torch.arange(1 << 12)).numpy().astype(np.int64)
_BY_EXPONENT = omega_bits(torch.ones(53, dtype=torch.int64) << torch.arange(53)).numpy().astype(np.int64)


def row_bits(row: np.ndarray, levels: int) -> int:
    """Bits of one row of levels + s."""
    return int(_row_bits(row, levels, _SHORT, _BY_EXPONENT))


@compiled
def _row_bits(row: np.ndarray, levels: int, short: np.ndarray, by_exponent: np.ndarray) -> int:
    bits, sent, last = 0, 0, -1
    for index in range(row.size):
        level = abs(np.int64(row[index]) - levels)
        if level != 0:
            gap = index - last
            last = index
            sent += 1
            bits += 1 + (short[gap] if gap < short.size else _long(gap, by_exponent))
            if levels > 1:
                bits += short[level] if level < short.size else _long(level, by_exponent)
    return bits + (short[sent + 1] if sent + 1 < short.size else _long(sent + 1, by_exponent))


@compiled
def _long(number: int, by_exponent: np.ndarray) -> int:
    exponent = 0
    while number >> (exponent + 1):
        exponent += 1
    return by_exponent[exponent]
