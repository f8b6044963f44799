"""Digits of any base, packed in groups of whole bytes."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fedcomp.wire.coding.contract import Coding, WireError, bits_for, check_within, integer_dtype, take_bits, to_row
from fedcomp.wire.coding.fixed import Unsigned
from fedcomp.wire.coding.packed_bytes import blocks, bytes_of, pack_bits, unpack_bits, unsigned_of


@dataclass(frozen=True)
class Digits(Coding):
    """Integers in [0, base), in groups of g digits in b bytes: the number sum_j digit_j base^j.

    g is the number of digits that fit in b bytes, and b <= 8 has the fewest bits per digit: for base 3, five digits per
    byte. The last, shorter group takes as few bytes as possible. If no b is better than `ceil(log2(base))` bits per
    digit, the digits are written with this fixed width.
    """

    base: int

    def __post_init__(self) -> None:
        if not 2 <= self.base < 1 << 32:
            raise ValueError(f"Digits({self.base}): the base is at least 2 and below 2^32")

    def fixed_bits(self, num: int) -> int:
        capacities = _capacities(self.base)
        if capacities is None:
            return num * bits_for(self.base)
        num_groups, remainder = divmod(num, capacities[-1])
        return 8 * (num_groups * (len(capacities) - 1) + _num_bytes(capacities, remainder))

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        if count is None:
            return data.new_full((data.shape[0],), self.fixed_bits(data.shape[1]), dtype=torch.int64)
        capacities = _capacities(self.base)
        if capacities is None:
            return count * bits_for(self.base)
        remainder = count % capacities[-1]
        num_bytes = count // capacities[-1] * (len(capacities) - 1)
        for capacity in capacities:
            num_bytes = num_bytes + (remainder > capacity)
        return 8 * num_bytes

    def check(self, row: Tensor) -> None:
        check_within(row, 0, self.base)

    def write(self, row: Tensor) -> Tensor:
        capacities = _capacities(self.base)
        if capacities is None:
            return Unsigned(bits_for(self.base), self.base).write(row)
        group = capacities[-1]
        whole = row.shape[0] // group * group
        packed = [self._write_groups(row[:whole].view(-1, group), len(capacities) - 1)]
        if whole < row.shape[0]:
            packed.append(self._write_groups(row[None, whole:], _num_bytes(capacities, row.shape[0] - whole)))
        return unpack_bits(torch.cat(packed))

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        capacities = _capacities(self.base)
        if capacities is None:
            return Unsigned(bits_for(self.base), self.base).read(bits, start, num, dtype)
        packed = pack_bits(take_bits(bits, start, self.fixed_bits(num)))
        digits = bits.new_empty(num, dtype=integer_dtype(self.base, dtype))
        size, group = len(capacities) - 1, capacities[-1]
        whole = num // group
        self._read_groups(packed[: whole * size], size, digits[: whole * group].view(whole, group))
        if whole * group < num:
            self._read_groups(packed[whole * size :], len(packed) - whole * size, digits[None, whole * group :])
        return to_row(digits, dtype), start + self.fixed_bits(num)

    def _write_groups(self, digits: Tensor, size: int) -> Tensor:
        """The bytes of digits [groups, g], `size` bytes per group, most significant first."""
        numbers, num = digits.new_zeros(len(digits), dtype=torch.uint8 if size == 1 else torch.int64), digits.shape[1]
        narrow = torch.uint8 if size == 1 else torch.int32
        short = num if size == 1 else self._most_digits(31)  # digits added at a time
        for part in blocks(digits):
            for start in reversed(range(0, num, short)):
                piece: Tensor | int = 0
                for column in reversed(digits[part, start : start + short].unbind(1)):
                    piece = torch.add(column.to(narrow), piece, alpha=self.base)
                numbers[part].mul_(self.base**short).add_(piece)
        return bytes_of(numbers, size)

    def _read_groups(self, packed: Tensor, size: int, digits: Tensor) -> None:
        """Fill digits [groups, g] from bytes [groups size]."""
        numbers, num = unsigned_of(packed, size), digits.shape[1]
        exact = self._most_digits(53)  # float64 divides integers below 2^53 without rounding up to the next integer
        beyond = []
        for part in blocks(digits):
            for start, rest in zip((0, exact), _pieces(numbers[part], size, self.base**exact), strict=False):
                # A GPU replaces division by a Python number by multiplication with its rounded inverse.
                base = rest.new_full((), self.base)
                for place in range(start, min(start + exact, num)):
                    above = (rest / base).floor_()
                    digits[part, place] = torch.sub(rest, above, alpha=self.base)
                    rest = above
                beyond.append(rest.any())
        if beyond and torch.stack(beyond).any():
            raise WireError(f"a group of {num} digits that is no number of base {self.base}")

    def _most_digits(self, width: int) -> int:
        """The number of digits that fit in `width` bits."""
        num = 1
        while self.base ** (num + 1) <= 1 << width:
            num += 1
        return num


def _pieces(numbers: Tensor, size: int, split: int) -> list[Tensor]:
    """Numbers of `size` bytes (eight: modulo 2^64) as exact floats: whole, or remainder and quotient of `split`."""
    if size <= 6:
        return [numbers.to(torch.float32 if size <= 3 else torch.float64)]
    half = (numbers >> 1) & ((1 << 63) - 1)  # half of the unsigned number, as a non-negative int64
    above = half.div(split, rounding_mode="trunc").mul_(2)
    below = torch.sub(numbers, above, alpha=split)  # less than twice the divisor
    above += below >= split
    return [torch.sub(numbers, above, alpha=split).to(torch.float64), above.to(torch.float64)]


@lru_cache
def _capacities(base: int) -> tuple[int, ...] | None:
    """The number of digits that fit in 0, 1, ..., b bytes, for the best b; None if fixed width is as short."""
    most = [0]
    for num_bytes in range(1, 9):
        digits = most[-1]
        while base ** (digits + 1) <= 1 << (8 * num_bytes):
            digits += 1
        most.append(digits)
    best = max(range(1, 9), key=lambda num_bytes: (most[num_bytes] / num_bytes, -num_bytes))
    return tuple(most[: best + 1]) if most[best] * bits_for(base) > 8 * best else None


def _num_bytes(capacities: tuple[int, ...], num: int) -> int:
    """The smallest number of bytes in which `num` digits fit."""
    return sum(num > capacity for capacity in capacities)
