"""Digits of a base that is no power of two, packed in groups of whole bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fedcomp.wire.coding.contract import bits_for, extremes, holder, take, to_row
from fedcomp.wire.coding.fixed import Unsigned
from fedcomp.wire.coding.integers import blocks, bytes_of, unsigned_of
from fedcomp.wire.coding.packed_bytes import pack_bits, unpack_bits
from fedcomp.wire.errors import WireError


@dataclass(frozen=True)
class Digits:
    """Integers in [0, base): g of them in b bytes as the number sum_j digit_j base^j, g and b as short as can be.

    b <= 8 is the one with the fewest bits a digit, g the most digits that b bytes hold: five trits a byte for base 3.
    The digits left over at the end take as few bytes as hold them. Where no group is shorter than `ceil(log2(base))`
    bits a digit, they are written so.
    """

    base: int

    def __post_init__(self) -> None:
        assert 2 <= self.base < 1 << 32, self.base

    def fixed_bits(self, num: int) -> int:
        held = _held(self.base)
        if held is None:
            return num * bits_for(self.base)
        return 8 * (num // held[-1] * (len(held) - 1) + sum(num % held[-1] > most for most in held))

    def bits(self, data: Tensor, count: Tensor | None = None) -> Tensor:
        if count is None:
            return data.new_full((data.shape[0],), self.fixed_bits(data.shape[1]), dtype=torch.int64)
        held = _held(self.base)
        if held is None:
            return count * bits_for(self.base)
        left = count % held[-1]
        num_bytes = count // held[-1] * (len(held) - 1)
        for most in held:
            num_bytes = num_bytes + (left > most)
        return 8 * num_bytes

    def write(self, row: Tensor) -> Tensor:
        held = _held(self.base)
        if held is None:
            return Unsigned(bits_for(self.base), self.base).write(row)
        least, most = extremes(row) or (0, -1)
        fits = least >= 0 and most < self.base
        assert fits, f"entries from {least} to {most} do not fit in base {self.base}"
        group = held[-1]
        whole = row.shape[0] // group * group
        packed = [self._write_groups(row[:whole].view(-1, group), len(held) - 1)]
        if whole < row.shape[0]:
            packed.append(self._write_groups(row[None, whole:], _num_bytes(held, row.shape[0] - whole)))
        return unpack_bits(torch.cat(packed))

    def read(self, bits: Tensor, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        held = _held(self.base)
        if held is None:
            return Unsigned(bits_for(self.base), self.base).read(bits, start, num, dtype)
        packed = pack_bits(take(bits, start, self.fixed_bits(num)))
        digits, size, group = bits.new_empty(num, dtype=holder(self.base, dtype)), len(held) - 1, held[-1]
        whole = num // group
        self._read_groups(packed[: whole * size], size, digits[: whole * group].view(whole, group))
        if whole * group < num:
            self._read_groups(packed[whole * size :], len(packed) - whole * size, digits[None, whole * group :])
        return to_row(digits, dtype), start + self.fixed_bits(num)

    def _write_groups(self, digits: Tensor, size: int) -> Tensor:
        """The bytes of digits [groups, g], each group in `size` of them, most significant first."""
        numbers, num = digits.new_zeros(len(digits), dtype=torch.uint8 if size == 1 else torch.int64), digits.shape[1]
        narrow = torch.uint8 if size == 1 else torch.int32
        short = num if size == 1 else self._most_digits(31)  # so many at a time
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
        exact = self._most_digits(53)  # quotients of integers that a float holds do not round up to an integer
        beyond = []
        for part in blocks(digits):
            for start, rest in zip((0, exact), _pieces(numbers[part], size, self.base**exact), strict=False):
                base = rest.new_full((), self.base)  # by a bare number a GPU multiplies with its rounded inverse
                for place in range(start, min(start + exact, num)):
                    above = (rest / base).floor_()
                    digits[part, place] = torch.sub(rest, above, alpha=self.base)
                    rest = above
                beyond.append(rest.any())
        if beyond and torch.stack(beyond).any():
            raise WireError(f"a group of {num} digits that is no number of base {self.base}")

    def _most_digits(self, width: int) -> int:
        """Digits whose number takes at most `width` bits."""
        num = 1
        while self.base ** (num + 1) <= 1 << width:
            num += 1
        return num


def _pieces(numbers: Tensor, size: int, split: int) -> list[Tensor]:
    """Numbers of `size` bytes (eight: modulo 2^64) as floats that hold them: at once, or modulo `split` and above."""
    if size <= 6:
        return [numbers.to(torch.float32 if size <= 3 else torch.float64)]
    half = (numbers >> 1) & ((1 << 63) - 1)  # as signed division takes them
    above = half.div(split, rounding_mode="trunc").mul_(2)
    below = torch.sub(numbers, above, alpha=split)  # less than twice the divisor
    above += below >= split
    return [torch.sub(numbers, above, alpha=split).to(torch.float64), above.to(torch.float64)]


@lru_cache
def _held(base: int) -> tuple[int, ...] | None:
    """Most digits that 0, 1, ..., b bytes hold, for the best b; None where fixed width is as short."""
    most = [0]
    for num_bytes in range(1, 9):
        digits = most[-1]
        while base ** (digits + 1) <= 1 << (8 * num_bytes):
            digits += 1
        most.append(digits)
    best = max(range(1, 9), key=lambda num_bytes: (most[num_bytes] / num_bytes, -num_bytes))
    return tuple(most[: best + 1]) if most[best] * bits_for(base) > 8 * best else None


def _num_bytes(held: tuple[int, ...], num: int) -> int:
    """The fewest bytes that hold `num` digits."""
    return sum(num > most for most in held)
