"""A random order of the entries of every row, each row's own: entry (step i + start) mod n becomes the i-th.

`start` is uniform on 0, ..., n - 1, and `step` one of 64 numbers that share no factor with n. So every entry is equally
likely at every position, and two entries are at nearly independent positions: the first m have their share m / n of a
row's energy, up to about as much chance as in a uniformly random order, for which random numbers would be sorted.

Shape legend: M rows, n entries that are ordered.
"""

import functools
import math

import torch
from torch import Tensor

from fedcomp.core.rows import scatter_distinct_
from fedcomp.random.keys import Key

STEPS = 64
DRAWN = 1024
"""Of so many numbers the first STEPS without a factor in common with n: below 2^17, at least 0.19 of all are such."""


def draw(key: Key, ids_M: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(step [M], start [M]) int64 of the orders of `size` entries that (key, ids[i]) names."""
    words = key.bits(ids_M, 2)
    steps = torch.tensor(_steps(size), device="cpu").to(ids_M.device, non_blocking=True)
    return steps[words[:, 0] % STEPS], words[:, 1] % size


def apply(values_Mn: Tensor, step_M: Tensor, start_M: Tensor, inverse: bool) -> None:
    """Order the entries of every row in place, or with `inverse` undo it."""
    size = values_Mn.shape[1]
    positions = torch.arange(size, device=values_Mn.device) * step_M[:, None]
    positions = positions.add_(start_M[:, None]).remainder_(size)
    if inverse:
        values_Mn.copy_(scatter_distinct_(torch.empty_like(values_Mn), positions, values_Mn))
    else:
        values_Mn.copy_(values_Mn.gather(1, positions))


@functools.cache
def _steps(size: int) -> tuple[int, ...]:
    """STEPS numbers from 1 to `size` - 1, drawn once for all, that share no factor with it; also some twice."""
    drawn = (Key(("steps", size)).bits(torch.zeros(1, dtype=torch.int64), DRAWN)[0] % size).tolist()
    return tuple(one for one in drawn if math.gcd(one, size) == 1)[:STEPS]
