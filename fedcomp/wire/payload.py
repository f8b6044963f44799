"""A message: named fields whose entries have a declared coding, from which its number of bits follows.

Shape legend: M senders (rows), n entries of a field.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedcomp.wire.coding import Coding, bits_for
from fedcomp.wire.coding.contract import WireError


@dataclass(frozen=True)
class Field:
    """Entries of one kind.

    Attributes:
        data: [M, n] floats or non-negative integer codes.
        coding: how an entry is written.
        count: [M] int64 number of entries that a row sends, its first ones (the others are zero); the number is sent
            before them. None: a row sends all n entries.
        count_known: both ends know `count`, so it is neither sent nor counted.
        on_paper: whether the method's paper counts this field, unless `Payload.paper_bits` is given.
    """

    data: Tensor
    coding: Coding
    count: Tensor | None = None
    count_known: bool = False
    on_paper: bool = True

    @property
    def static_bits(self) -> int | None:
        """Bits of a row, if the layout alone determines them; else None."""
        return self.coding.fixed_bits(self.data.shape[1]) if self.count is None else None

    @functools.cached_property
    def bits(self) -> Tensor:
        """[M] int64 bits of each row, including its count."""
        bits = self.coding.bits(self.data, self.count)
        return bits if self.count is None or self.count_known else bits + bits_for(self.data.shape[1] + 1)


@dataclass(frozen=True)
class Payload:
    """One message per sender: a row each.

    Attributes:
        fields: by name, in the order in which they are sent.
        paper_bits: bits per row as the method's paper counts them; None: the bits of the fields that are `on_paper`.
        measured: metrics of the message [M] by name, which a link keeps and the receiver does not get.
    """

    fields: Mapping[str, Field]
    paper_bits: int | None = None
    measured: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """M."""
        return next(iter(self.fields.values())).data.shape[0]

    def expect(self, **nums: int) -> tuple[Tensor, ...]:
        """The data of the fields, for a decoder that expects these names with n entries each.

        Raises:
            WireError: this message has other fields, or other numbers of entries.
        """
        given = {name: field.data.shape[1] for name, field in self.fields.items()}
        if given != nums:
            raise WireError(
                f"this message holds {_described(given)}; expected {_described(nums)}: it was made by another codec or "
                "for another vector"
            )
        return tuple(self.fields[name].data for name in nums)

    @property
    def bits(self) -> Tensor:
        """[M] int64 bits of each row's message."""
        each = [field.bits for field in self.fields.values()]
        return torch.stack(each).sum(0)

    def row_bits(self, total: int | Tensor) -> int | Tensor:
        """Bits of each row, given `total_bits`: an int if the layout determines them, else int64 [M]."""
        if isinstance(total, int):
            return total // self.num_rows
        fixed, varying = _by_form(list(self.fields.values()))
        bits = varying[0].bits if len(varying) == 1 else torch.stack([field.bits for field in varying]).sum(0)
        return bits + fixed if fixed else bits

    @property
    def total_bits(self) -> int | Tensor:
        """Bits of all rows: an int if the layout determines them, else a 0-d tensor on the payload's device."""
        return _total(list(self.fields.values()), self.num_rows)

    @property
    def total_paper_bits(self) -> int | Tensor:
        """As `total_bits`, as the method's paper counts them."""
        if self.paper_bits is not None:
            return self.paper_bits * self.num_rows
        return _total([field for field in self.fields.values() if field.on_paper], self.num_rows)


def _total(fields: Sequence[Field], num_rows: int) -> int | Tensor:
    fixed, varying = _by_form(fields)
    total = fixed * num_rows
    return total if not varying else torch.stack([field.bits.sum() for field in varying]).sum() + total


def _by_form(fields: Sequence[Field]) -> tuple[int, list[Field]]:
    """(bits of a row in the fields whose layout alone determines them, the other fields)."""
    each = [(field, field.static_bits) for field in fields]
    return sum(bits for _, bits in each if bits is not None), [field for field, bits in each if bits is None]


def _described(nums: Mapping[str, int]) -> str:
    return ", ".join(f"{num} {name}" for name, num in nums.items()) or "nothing"
