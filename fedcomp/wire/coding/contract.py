"""What a coding does, and what all codings share.

A coding counts bits for all rows at once without writing any (`bits`, `fixed_bits`), and writes and reads one row for
the wire (`write`, `read`) on the device of the row. The two must agree to the bit, which `WireLink` checks on every
message. Reading is strict: what no sender can have written is a `WireError`. What the host reads for that are a few
numbers a field, never its entries, unless a coding says so.
Shape legend: M rows (senders), n entries a row.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fedcomp.wire.errors import WireError


class Coding(Protocol):
    """One way to write entries."""

    def fixed_bits(self, num: int) -> int | None:
        """Bits of `num` entries if their values do not matter; None if they do."""
        ...

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        """[M] int64 bits of the rows of data [M, n]: of all entries, or of the first `count` [M] of each row.

        They are counted on the data's device, and nothing is read back to the host.
        """
        ...

    def write(self, row: Tensor) -> Tensor:
        """The bits (uint8 of 0 and 1) of one row [n], on its device; maybe the row itself, not to be written to."""
        ...

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        """Read `num` entries from `bits[start:]`: the row [num] of `dtype` on their device, and where the next starts.

        Raises:
            WireError: the bits end too early, or are not the code of `num` allowed entries.
        """
        ...


def bits_for(num_values: int) -> int:
    """ceil(log2(num_values)): bits that tell `num_values` things apart."""
    return max(num_values - 1, 0).bit_length()


def take(bits: Tensor, start: int, num: int) -> Tensor:
    """`bits[start : start + num]`, or WireError if there are fewer."""
    if start + num > len(bits):
        raise WireError(f"the message ends after {max(len(bits) - start, 0)} of {num} bits")
    return bits[start : start + num]


def extremes(values: Tensor) -> tuple[int, int] | None:
    """The least and the largest entry, in one read of the device; None if there are no entries."""
    if not values.numel():
        return None
    least, most = torch.stack(values.aminmax()).tolist()
    return least, most


def holder(limit: int, dtype: torch.dtype) -> torch.dtype:
    """`dtype` if it is one of integers and holds all below `limit`; else int64, which `to_row` then checks."""
    return dtype if not dtype.is_floating_point and torch.iinfo(dtype).max >= limit - 1 else torch.int64


def to_row(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Non-negative integers as a row of `dtype`, or WireError if one is too large for it."""
    if not dtype.is_floating_point and torch.iinfo(values.dtype).max > torch.iinfo(dtype).max:
        _, most = extremes(values) or (0, 0)
        if most > torch.iinfo(dtype).max:
            raise WireError(f"an entry of {most}, more than {dtype} holds")
    return values.to(dtype)


def check_below(values: Tensor, limit: int) -> None:
    """Raise WireError unless all values are below `limit`."""
    _, most = extremes(values) or (0, -1)
    if most >= limit:
        raise WireError(f"an entry of {most} where at most {limit - 1} is allowed")


def row_bits(data: Tensor, count: Tensor | None, each: int) -> Tensor:
    """[M] int64: `each` bits for every entry that is sent."""
    if count is not None:
        return count * each
    return torch.full((data.shape[0],), each * data.shape[1], dtype=torch.int64, device=data.device)


def sum_sent(each: Tensor, count: Tensor | None) -> Tensor:
    """[M] int64: row sums of [M, n], over the first `count` entries of each row."""
    if count is not None:
        each = each * (torch.arange(each.shape[1], device=each.device) < count[:, None])
    return each.sum(1, dtype=torch.int64)
