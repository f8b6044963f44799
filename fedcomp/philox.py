"""Philox4x32-10, the counter-based generator behind every keyed draw, in plain torch.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
A pure function of (key, counter): no state, the same words on every device and for every chunk size.
"""

from __future__ import annotations

import torch
from torch import Tensor

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox4x32(key: tuple[int, int], counter: Tensor) -> Tensor:
    """Encrypt counters: out = Philox4x32-10(key, counter).

    Args:
        key: two 32-bit words.
        counter: [4, ...] int64, each entry a 32-bit word.
    Returns:
        [4, ...] int64 words, uniform on [0, 2^32).
    """
    # Products of 32-bit words fill 64 bits; int64 wraps, and the two halves are masked out of the wrapped value.
    shape = counter.shape[1:]
    factors = counter.new_tensor(MULTIPLIERS).view(2, *[1] * len(shape))
    even, odd = counter[0::2], counter[1::2]  # (c0, c2), (c1, c3)
    for step in range(ROUNDS):
        round_key = [(key[lane] + step * WEYL[lane]) & MASK for lane in (0, 1)]
        product = even * factors
        high = ((product >> 32) & MASK).flip(0)
        low = (product & MASK).flip(0)
        high ^= odd
        high[0] ^= round_key[0]
        high[1] ^= round_key[1]
        even, odd = high, low
    return torch.stack((even[0], odd[0], even[1], odd[1]))
