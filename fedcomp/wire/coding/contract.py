"""What a coding does, and what all codings share.

A coding counts bits for all rows at once without writing any (`bits`, `fixed_bits`), and writes and reads one row for
the wire (`write`, `read`). The two must agree to the bit, which `WireLink` checks on every message. Reading is strict:
what no sender can have written is a `WireError`.
Shape legend: M rows (senders), n entries a row.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.errors import WireError


class Coding(Protocol):
    """One way to write entries."""

    def fixed_bits(self, num: int) -> int | None:
        """Bits that `num` entries take whatever they are; None if that depends on them."""
        ...

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        """[M] int64 bits of the rows of data [M, n]: of all entries, or of the first `count` [M] of each row.

        They are counted on the data's device, and nothing is read back to the host.
        """
        ...

    def write(self, row: Tensor) -> np.ndarray:
        """The bits (uint8 of 0 and 1) of one row [n] on the CPU."""
        ...

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        """Read `num` entries from `bits[start:]`: the row [num] of `dtype`, and where the next field starts.

        Raises:
            WireError: the bits end too early, or are not the code of `num` allowed entries.
        """
        ...


def bits_for(num_values: int) -> int:
    """ceil(log2(num_values)): bits that tell `num_values` things apart."""
    return max(num_values - 1, 0).bit_length()


def take(bits: np.ndarray, start: int, num: int) -> np.ndarray:
    """`bits[start : start + num]`, or WireError if there are fewer."""
    if start + num > len(bits):
        raise WireError(f"the message ends after {max(len(bits) - start, 0)} of {num} bits")
    return bits[start : start + num]


def to_row(values: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Non-negative integers as a row of `dtype`, or WireError if one is too large for it."""
    if values.size and not dtype.is_floating_point and int(values.max()) > torch.iinfo(dtype).max:
        raise WireError(f"an entry of {values.max()}, more than {dtype} holds")
    return torch.from_numpy(values.astype(torch.empty(0, dtype=dtype).numpy().dtype))


def check_below(values: np.ndarray, limit: int) -> None:
    """Raise WireError unless all values are below `limit`."""
    if values.size and int(values.max()) >= limit:
        raise WireError(f"an entry of {values.max()} where at most {limit - 1} is allowed")


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
