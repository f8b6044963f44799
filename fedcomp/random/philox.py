"""Philox4x32-10, the counter-based generator behind every keyed draw.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
A pure function of (key, counter): no state, the same words on every device and for every chunk size. `keys.py` uses the
NumPy form on a CPU, where its calls take a third of torch's time on the small arrays of a round, and the torch form
elsewhere. Both give the same bits.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox_numpy(key: tuple[int, int] | tuple[np.ndarray, np.ndarray], counter: np.ndarray) -> np.ndarray:
    """Encrypt counters: out = Philox4x32-10(key, counter).

    Args:
        key: two 32-bit words, or two uint64 arrays of them that broadcast against an entry of `counter`.
        counter: [4, ...] uint64, each entry a 32-bit word.
    Returns:
        [4, ...] uint64 words, uniform on [0, 2^32).
    """
    ones = (1,) * (counter.ndim - 1)
    factors = np.array(MULTIPLIERS, np.uint64).reshape(2, *ones)
    keys = np.array([_round_key(key, step) for step in range(ROUNDS)], np.uint64)
    keys = keys.reshape(ROUNDS, 2, *ones) if keys.ndim == 2 else keys
    low_bits, half = np.uint64(MASK), np.uint64(32)
    even, odd = counter[0::2], counter[1::2]  # (c0, c2), (c1, c3)
    for step in range(ROUNDS):
        product = even * factors
        even = (product >> half)[::-1] ^ odd ^ keys[step]
        odd = (product & low_bits)[::-1]
    return np.stack((even[0], odd[0], even[1], odd[1]))


def philox_torch(key: tuple[int, int] | Tensor, counter: Tensor) -> Tensor:
    """As `philox_numpy`, on int64 tensors of any device: products wrap around, and both halves are masked out.

    `key` may also be a tensor [2, ...] that broadcasts against the counters, for keys that only the device knows.
    """
    c0, c1, c2, c3 = counter.unbind()
    for step in range(ROUNDS):  # the constants stay Python ints: tensors would be copied to the GPU
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        round0, round1 = _round_key(key, step)
        c0, c1 = ((second >> 32) & MASK) ^ c1 ^ round0, second & MASK
        c2, c3 = ((first >> 32) & MASK) ^ c3 ^ round1, first & MASK
    return torch.stack((c0, c1, c2, c3))


def _round_key(key: Any, step: int) -> tuple[Any, Any]:
    return (key[0] + step * WEYL[0]) & MASK, (key[1] + step * WEYL[1]) & MASK
