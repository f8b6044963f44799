"""Digits of a base that is no power of two, packed in groups of whole bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedcomp.wire.coding.contract import bits_for, take, to_row
from fedcomp.wire.coding.fixed import Unsigned
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
        octets = count // held[-1] * (len(held) - 1)
        for most in held:
            octets = octets + (left > most)
        return 8 * octets

    def write(self, row: Tensor) -> np.ndarray:
        held = _held(self.base)
        if held is None:
            return Unsigned(bits_for(self.base), self.base).write(row)
        digits, group = row.numpy(), held[-1]
        assert digits.size == 0 or (digits.min() >= 0 and digits.max() < self.base), (
            f"entries from {digits.min()} to {digits.max()} do not fit in base {self.base}"
        )
        whole = digits.size // group * group
        bits = [self._write_groups(digits[:whole].reshape(-1, group), len(held) - 1)]
        if whole < digits.size:
            bits.append(self._write_groups(digits[None, whole:], _octets(held, digits.size - whole)))
        return np.concatenate(bits)

    def read(self, bits: np.ndarray, start: int, num: int, dtype: torch.dtype) -> tuple[Tensor, int]:
        held = _held(self.base)
        if held is None:
            return Unsigned(bits_for(self.base), self.base).read(bits, start, num, dtype)
        octets = np.packbits(take(bits, start, self.fixed_bits(num)))
        digits, size, group = np.empty(num, f"u{_carrier(bits_for(self.base))}"), len(held) - 1, held[-1]
        whole = num // group
        self._read_groups(octets[: whole * size].reshape(whole, size), digits[: whole * group].reshape(whole, group))
        if whole * group < num:
            self._read_groups(octets[None, whole * size :], digits[None, whole * group :])
        return to_row(digits, dtype), start + self.fixed_bits(num)

    def _write_groups(self, digits: np.ndarray, size: int) -> np.ndarray:
        """The bits of digits [groups, g], each group in `size` bytes, most significant first."""
        carrier = _carrier(8 * size)
        number = np.zeros(len(digits), f"u{carrier}")
        for column in digits.T[::-1]:
            number *= number.dtype.type(self.base)
            number += column.astype(number.dtype)
        octets = number.astype(f">u{carrier}").view(np.uint8).reshape(-1, carrier)[:, carrier - size :]
        return np.unpackbits(octets.reshape(-1))

    def _read_groups(self, octets: np.ndarray, digits: np.ndarray) -> None:
        """Fill digits [groups, g] from octets [groups, size]."""
        size, carrier = octets.shape[1], _carrier(8 * octets.shape[1])
        wide = np.zeros((len(octets), carrier), np.uint8)
        wide[:, carrier - size :] = octets
        number = wide.view(f">u{carrier}").reshape(-1).astype(f"=u{carrier}")
        for place in range(digits.shape[1]):
            number, digits[:, place] = np.divmod(number, number.dtype.type(self.base))
        if number.any():
            raise WireError(f"a group of {digits.shape[1]} digits that is no number of base {self.base}")


@lru_cache
def _held(base: int) -> tuple[int, ...] | None:
    """Most digits that 0, 1, ..., b bytes hold, for the best b; None where fixed width is as short."""
    most = [0]
    for octets in range(1, 9):
        digits = most[-1]
        while base ** (digits + 1) <= 1 << (8 * octets):
            digits += 1
        most.append(digits)
    best = max(range(1, 9), key=lambda octets: (most[octets] / octets, -octets))
    return tuple(most[: best + 1]) if most[best] * bits_for(base) > 8 * best else None


def _octets(held: tuple[int, ...], num: int) -> int:
    """The fewest bytes that hold `num` digits."""
    return sum(num > most for most in held)


def _carrier(width: int) -> int:
    """Bytes of the narrowest unsigned integer of at least `width` bits."""
    return next(size for size in (1, 2, 4, 8) if width <= 8 * size)
