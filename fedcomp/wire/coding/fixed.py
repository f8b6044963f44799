"""Codes of one width: unsigned integers and IEEE floats."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.wire.coding.contract import (
    Coding,
    WireError,
    check_below,
    check_within,
    integer_dtype,
    row_bits,
    take_bits,
    to_row,
)
from fedcomp.wire.coding.packed_bytes import WORD, bits_of, bytes_of, float_of, integers_of, pack_bits, unpack_bits


@dataclass(frozen=True)
class Unsigned(Coding):
    """Integers in [0, 2^width), most significant bit first.

    Attributes:
        width: bits per entry, at most 63.
        limit: entries are below it; None: below 2^width.
        limits: the limit of each entry of a message, where they differ.
    """

    width: int
    limit: int | None = None
    limits: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.width <= 63:
            raise ValueError(f"Unsigned({self.width}): the bits of an entry are 0 to 63")

    def fixed_bits(self, num: int) -> int:
        return num * self.width

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return row_bits(data, count, self.width)

    def check(self, row: Tensor) -> None:
        check_within(row, 0, 1 << self.width if self.limit is None else self.limit)
        self._check_limits(row)

    def write(self, row: Tensor) -> Tensor:
        return row.to(torch.uint8) if self.width == 1 else bits_of(row, self.width)

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        end = start + num * self.width
        held = integer_dtype(1 << self.width, dtype)
        values = integers_of(take_bits(bits, start, num * self.width), self.width, num, held)
        if self.limit is not None:
            check_below(values, self.limit)
        self._check_limits(values)
        return to_row(values, dtype), end

    def _check_limits(self, values: Tensor) -> None:
        if self.limits is not None and bool((values >= torch.tensor(self.limits, device=values.device)).any()):
            raise WireError("an entry is at or above its limit")


@dataclass(frozen=True)
class Float(Coding):
    """IEEE floats of the given type, unchanged."""

    dtype: torch.dtype = torch.float32

    @property
    def width(self) -> int:
        """Bits per entry."""
        return 8 * self.dtype.itemsize

    def fixed_bits(self, num: int) -> int:
        return num * self.width

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        return row_bits(data, count, self.width)

    def check(self, row: Tensor) -> None:
        """Every float fits."""

    def write(self, row: Tensor) -> Tensor:
        size = self.dtype.itemsize
        return unpack_bits(bytes_of(row.contiguous().view(WORD[size]), size))

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        packed = pack_bits(take_bits(bits, start, num * self.width))
        return float_of(packed, self.dtype), start + num * self.width


@dataclass(frozen=True)
class FiniteFloat(Float):
    """As `Float`, for entries that are finite and within bounds, which a receiver checks.

    Attributes:
        least: the smallest magnitude.
        signed: whether entries can be negative.
    """

    least: float = 0.0
    signed: bool = True

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        values, end = super().read(bits, start, num, dtype)
        self.check(values)
        return values, end

    def check(self, values: Tensor) -> None:
        allowed = values.isfinite() & (values.abs() >= self.least)
        if not self.signed:
            allowed &= values >= 0
        if not bool(allowed.all()):
            kind = "a finite number" if self.signed else "a finite number, 0 or more,"
            bound = f" of magnitude {self.least:.7g} or more" if self.least else ""
            raise WireError(f"an entry of {values[~allowed][0]} where {kind}{bound} is expected")
