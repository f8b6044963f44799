"""Elias' omega code of positive integers.

P. Elias, "Universal codeword sets and representations of the integers", IEEE Trans. Inf. Theory 21, 1975. The code of
N ends with a zero; before it stands N in binary, before that the number of N's bits less one in binary, and so on,
down to two bits: 1 -> 0, 2 -> 10 0, 4 -> 10 100 0, 17 -> 10 100 10001 0.

A reader starts with n = 1 and reads a bit: zero ends the code, and N = n; after a one come n more bits, and these
n + 1 bits are the next n. Here all entries take these steps together, as tensor operations: for each step, a message
has the leading bits of all entries whose codes have not ended, and then the n bits that follow, sorted by n. The bits
are those of the omega code in another order. In each step the host reads only the number of entries for each n.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.wire.coding.contract import (
    Coding,
    WireError,
    check_below,
    check_within,
    min_max,
    sum_sent,
    take_bits,
    to_row,
)
from fedcomp.wire.coding.packed_bytes import bits_of, integers_of, nonzero_indices

LARGEST_WIDTH = 53
"""Entries are below 2^53, whose logarithm a float64 gives exactly."""
_DEEPEST = 4
"""After so many iterated logarithms every entry is at most 1."""
_JUMPS = ((1, 1), (2, 2), (4, 3), (8, 1), (16, 4), (32, 1))
"""(threshold, bits): with e = floor(log2 N), the code of N has e + 1 bits, and `bits` more for each threshold <= e."""


@dataclass(frozen=True)
class Elias(Coding):
    """Omega codes of positive integers. `limit`: entries are below it."""

    limit: int = 1 << LARGEST_WIDTH

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return sum_sent(omega_bits(data), count)

    def check(self, row: Tensor) -> None:
        check_within(row, 1, self.limit)

    def write(self, row: Tensor) -> Tensor:
        lead = row > 1
        written, numbers = [lead.to(torch.uint8)], row[nonzero_indices(lead)].to(torch.int64)
        logs = [_log2(numbers)]  # iterated logarithms; each is sent before the number whose logarithm it is
        while len(logs) < _DEEPEST:
            logs.append(_log2(logs[-1]))
        left = torch.zeros_like(logs[0])  # number of steps after this one
        for log in logs:
            left += log > 1
        while left.numel():
            sent = torch.where(left == 0, numbers, _at(logs, left - 1))
            for width, _, members in _by_width(_at(logs, left)):
                written.append(bits_of(sent[members], width))
            lead = left > 0
            written.append(lead.to(torch.uint8))
            keep = nonzero_indices(lead)
            numbers, logs, left = numbers[keep], [log[keep] for log in logs], left[keep] - 1
        return torch.cat(written)

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        unfinished, at = nonzero_indices(take_bits(bits, start, num)), start + num
        values = bits.new_ones(num, dtype=torch.int64)
        widths = values[: len(unfinished)].clone()
        while len(unfinished):
            _, largest = min_max(widths) or (0, 0)
            if largest >= LARGEST_WIDTH:
                raise WireError(f"the code of a number of {largest + 1} bits")
            numbers = torch.empty_like(widths)
            for width, num_members, members in _by_width(widths):
                low = integers_of(take_bits(bits, at, width * num_members), width, num_members)
                numbers[members] = low.bitwise_or_(1 << width)
                at += width * num_members
            values[unfinished] = numbers
            keep = nonzero_indices(take_bits(bits, at, len(unfinished)))
            at += len(unfinished)
            unfinished, widths = unfinished[keep], numbers[keep]
        check_below(values, self.limit)
        return to_row(values, dtype), at


def omega_bits(values: Tensor) -> Tensor:
    """[...] uint8 length of each entry's code; 1 for entries that are not positive."""
    exponent = _log2(values)
    length = exponent + 1
    for threshold, more in _JUMPS:
        length += (exponent >= threshold).to(torch.uint8) * more
    return length


def _log2(numbers: Tensor) -> Tensor:
    """[...] uint8 floor(log2 N); 0 for entries that are not positive."""
    return ((numbers.clamp(min=1).to(torch.float64).view(torch.int64) >> 52) - 1023).to(torch.uint8)


def _at(logs: list[Tensor], depths: Tensor) -> Tensor:
    """[n] entry i of the logarithms of depth depths_i, both uint8."""
    chosen = logs[0]
    for depth, log in enumerate(logs[1:], 1):
        chosen = torch.where(depths == depth, log, chosen)
    return chosen


def _by_width(widths: Tensor) -> Iterator[tuple[int, int, Tensor | slice]]:
    """(width, number of entries with it, their indices in order) for each width, ascending."""
    for width, num in enumerate(torch.bincount(widths).tolist()):
        if num:
            yield width, num, slice(None) if num == len(widths) else nonzero_indices(widths == width)
