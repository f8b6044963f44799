"""A random order of the entries of every row, each row's own: the i-th entry becomes entry (step i + start) mod n.

`start` is uniform on 0, ..., n - 1, and `step` on the numbers below n that share no factor with n. So every entry is
equally likely at every place, and two entries are at nearly independent places: a set of entries that shares a row's
energy with the others does so in proportion to its size, up to about as much chance as in a uniformly random order.
That costs a sort of random numbers a row, and this a product and a remainder an entry.

Shape legend: M rows, n entries that are ordered.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcomp.core.rows import scatter_distinct_
from fedcomp.random.keys import Key

CANDIDATES = 31
"""Steps that are drawn, of which the first without a factor in common with n is taken. For n below 2^17 each is such a
one with probability 0.19 or more. If none is, 1 in 1,000 rows at worst, the step is 1."""


def draw(key: Key, ids_M: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(step [M], start [M]) int64 of the orders of `size` entries that (key, ids[i]) names."""
    words = key.bits(ids_M, CANDIDATES + 1) % size
    start, candidates = words[:, 0], words[:, 1:]
    fits = torch.gcd(candidates, torch.full_like(candidates, size)) == 1
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    return torch.where(fits.any(1), candidates.gather(1, first)[:, 0], 1), start


def apply(values_Mn: Tensor, step_M: Tensor, start_M: Tensor, inverse: bool) -> None:
    """Order the entries of every row in place, or with `inverse` undo it."""
    size = values_Mn.shape[1]
    places = torch.arange(size, device=values_Mn.device) * step_M[:, None]
    places = places.add_(start_M[:, None]).remainder_(size)
    ordered = (
        scatter_distinct_(torch.empty_like(values_Mn), places, values_Mn) if inverse else values_Mn.gather(1, places)
    )
    values_Mn.copy_(ordered)
