"""Elias' omega code of positive integers.

P. Elias, "Universal codeword sets and representations of the integers", IEEE Trans. Inf. Theory 21, 1975. The code of
N ends with a zero; before it stands N in binary, before that the number of N's bits less one in binary, and so on,
down to two bits: 1 -> 0, 2 -> 10 0, 4 -> 10 100 0, 17 -> 10 100 10001 0.

A reader starts with n = 1 and reads a bit: zero ends the code, and N = n; after a one come n more bits, and these
n + 1 bits are the next n. Here all entries take such steps together, so that numpy does the work: a message holds, step
after step, first the leading bits of all entries that are not at their end, then the n bits that follow, sorted by n.
The bits are those of the omega code, in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.coding.contract import check_below, sum_sent, take, to_row
from fedcomp.wire.coding.fixed import Unsigned
from fedcomp.wire.errors import WireError

LARGEST_WIDTH = 53
"""Entries are below 2^53, whose logarithm a float64 gives exactly."""
_LOG2 = np.array([max(n.bit_length() - 1, 0) for n in range(64)], np.uint8)
_JUMPS = ((1, 1), (2, 2), (4, 3), (8, 1), (16, 4), (32, 1))
"""The code of N has e + 1 bits, e = floor(log2 N), and as many more as stand here for each threshold that e reaches."""


@dataclass(frozen=True)
class Elias:
    """Omega codes of positive integers.

    Attributes:
        limit: entries are below it.
    """

    limit: int = 1 << LARGEST_WIDTH

    def fixed_bits(self, num: int) -> int | None:
        return None if num else 0

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return sum_sent(omega_bits(data), count)

    def write(self, row: Tensor) -> np.ndarray:
        values = row.numpy().astype(np.int64)
        assert values.size == 0 or (values.min() >= 1 and values.max() < self.limit), (
            f"entries from {values.min()} to {values.max()} are not in [1, {self.limit})"
        )
        exponent: np.ndarray = (np.frexp(values.astype(np.float64))[1] - 1).astype(np.uint8)
        chain = [values, exponent, _LOG2[exponent], _LOG2[_LOG2[exponent]], _LOG2[_LOG2[_LOG2[exponent]]]]
        steps = (values > 1).astype(np.uint8)
        for number in chain[1:]:
            steps += number > 1
        written, going, step = [], np.arange(values.size), 0
        while going.size:
            lead = steps[going] > step
            written.append(lead.astype(np.uint8))
            going, step = going[lead], step + 1
            number, width = _at_step(chain, steps, going, step)
            for bits, members in _by_width(width):
                low = number[members] & ((1 << bits) - 1)
                written.append(Unsigned(bits).write(torch.from_numpy(low)))
        return np.concatenate(written) if written else np.empty(0, np.uint8)

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        values, going, at = np.ones(num, np.int64), np.arange(num), start
        while going.size:
            lead = take(bits, at, going.size).astype(bool)
            at, going = at + going.size, going[lead]
            if going.size and values[going].max() >= LARGEST_WIDTH:
                raise WireError(f"the code of a number of {values[going].max() + 1} bits")
            for width, members in _by_width(values[going].astype(np.uint8)):
                low, at = Unsigned(width).read(bits, at, len(members), torch.int64)
                values[going[members]] = low.numpy() | (1 << width)
        check_below(values, self.limit)
        return to_row(values, dtype), at


def omega_bits(values: Tensor) -> Tensor:
    """[...] uint8 length of each entry's code; 1 for what is no positive integer."""
    exponent = ((values.clamp(min=1).to(torch.float64).view(torch.int64) >> 52) - 1023).to(torch.uint8)
    length = exponent + 1
    for threshold, more in _JUMPS:
        length += (exponent >= threshold).to(torch.uint8) * more
    return length


def _at_step(chain: list[np.ndarray], steps: np.ndarray, going: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """What the entries `going` write in this step: numbers (int64), and their bits after the leading one (uint8)."""
    number, width = np.empty(going.size, np.int64), np.empty(going.size, np.uint8)
    left = steps[going] - step
    for depth in range(len(chain) - 1):
        members = left == depth
        number[members] = chain[depth][going[members]]
        width[members] = chain[depth + 1][going[members]]
    return number, width


def _by_width(widths: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(width, places of the entries of that width in order) for each width, ascending."""
    for width in np.flatnonzero(np.bincount(widths)):
        yield int(width), np.flatnonzero(widths == width)
