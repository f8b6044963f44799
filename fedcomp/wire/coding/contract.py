"""What a coding is, and the functions that they share.

A coding counts the bits of all rows without writing them (`bits`, `fixed_bits`), and writes and reads one row (`write`,
`read`) on the row's device. Both must agree to the bit, which `pack` checks for every message. Entries that do not
fit (`check`), and bits that no sender can have written, raise a `WireError`. For these checks the host reads a few
numbers per field, not its entries, unless a coding's docstring says otherwise.
Shape legend: M rows (senders), n entries a row.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class WireError(ValueError):
    """A message that is truncated, padded or damaged, or was written by another codec or for another vector.

    Attributes:
        row: which of several senders' it is; None: not known.
    """

    def __init__(self, problem: str, row: int | None = None) -> None:
        super().__init__(problem)
        self.row = row


class Coding(ABC):
    """A code for the entries of a field; a frozen dataclass of options."""

    @property
    def dtype(self) -> torch.dtype | None:
        """Of the floats that it writes; None: it writes non-negative integers, of any integer type."""
        return None

    def fixed_bits(self, num: int) -> int | None:
        """Bits of `num` entries if they do not depend on the values, else None."""
        return None if num else 0

    @abstractmethod
    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        """[M] int64 bits of each row of data [M, n]: of all its entries, or of its first `count` [M] entries.

        Computed on the data's device without synchronisation.
        """

    @abstractmethod
    def check(self, row: Tensor) -> None:
        """Raise WireError, which says what is allowed, unless every entry of one row [n] of the right type fits."""

    @abstractmethod
    def write(self, row: Tensor) -> Tensor:
        """The bits (uint8 of 0 and 1) of one row [n] that fits, on its device; maybe a view of it: do not modify."""

    @abstractmethod
    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        """Read `num` entries from `bits[start:]`: the row [num] of `dtype` on their device, and the end of its bits.

        Raises WireError: the bits end too early, or are not the code of `num` allowed entries.
        """


def bits_for(num_values: int) -> int:
    """ceil(log2(num_values)): bits of a fixed-width code for `num_values` values."""
    return max(num_values - 1, 0).bit_length()


def take_bits(bits: Tensor, start: int, num: int) -> Tensor:
    """`bits[start : start + num]`, or WireError if there are fewer."""
    if start + num > len(bits):
        raise WireError(f"the message ends after {max(len(bits) - start, 0)} of {num} bits")
    return bits[start : start + num]


def min_max(values: Tensor) -> tuple[int, int] | None:
    """The smallest and the largest entry, with one read from the device; None if there are no entries."""
    if not values.numel():
        return None
    smallest, largest = torch.stack(values.aminmax()).tolist()
    return smallest, largest


def integer_dtype(limit: int, dtype: torch.dtype) -> torch.dtype:
    """`dtype` if it is an integer type that holds all values below `limit`; else int64, which `to_row` then checks."""
    return dtype if not dtype.is_floating_point and torch.iinfo(dtype).max >= limit - 1 else torch.int64


def to_row(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Non-negative integers as a row of `dtype`, or WireError if one is too large for it."""
    if not dtype.is_floating_point and torch.iinfo(values.dtype).max > torch.iinfo(dtype).max:
        _, largest = min_max(values) or (0, 0)
        if largest > torch.iinfo(dtype).max:
            raise WireError(f"an entry of {largest}, more than {dtype} holds")
    return values.to(dtype)


def check_below(values: Tensor, limit: int) -> None:
    """Raise WireError unless all values are below `limit`."""
    _, largest = min_max(values) or (0, -1)
    if largest >= limit:
        raise WireError(f"an entry of {largest} where at most {limit - 1} is allowed")


def check_within(values: Tensor, first: int, limit: int) -> None:
    """Raise WireError unless all values are in [first, limit)."""
    smallest, largest = min_max(values) or (first, first)
    if not first <= smallest <= largest < limit:
        wrong = largest if largest >= limit else smallest
        raise WireError(f"an entry of {wrong} where {first} to {limit - 1} are allowed")


def row_bits(data: Tensor, count: Tensor | None, each: int) -> Tensor:
    """[M] int64: `each` bits for every sent entry."""
    if count is not None:
        return count * each
    return torch.full((data.shape[0],), each * data.shape[1], dtype=torch.int64, device=data.device)


def sum_sent(each: Tensor, count: Tensor | None) -> Tensor:
    """[M] int64: row sums of [M, n], or of the first `count` entries of each row."""
    if count is not None:
        each = each * (torch.arange(each.shape[1], device=each.device) < count[:, None])
    return each.sum(1, dtype=torch.int64)
