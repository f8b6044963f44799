"""What a message is: named fields whose entries have a declared coding; its bits follow from them.

Shape legend: M senders (rows), n entries of a field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.wire.coding import Coding, bits_for
from fedcomp.wire.errors import WireError


@dataclass(frozen=True)
class Field:
    """Entries of one kind.

    Attributes:
        data: [M, n] floats or non-negative integer codes.
        coding: how an entry is written.
        count: [M] int64 entries that row really sends, the first ones (the rest is zero and not sent); itself sent
            before them. None: all n, which both ends know.
        count_known: both ends know `count` from what they share, so that it is neither sent nor charged.
        on_paper: papers count it, where `Payload.paper_bits` does not say how many bits they count.
    """

    data: Tensor
    coding: Coding
    count: Tensor | None = None
    count_known: bool = False
    on_paper: bool = True

    @property
    def static_bits(self) -> int | None:
        """Bits a row takes, where all take as many and the layout alone says so; else None."""
        return self.coding.fixed_bits(self.data.shape[1]) if self.count is None else None

    @property
    def bits(self) -> Tensor:
        """[M] int64 bits of each row, the count's own included."""
        bits = self.coding.bits(self.data, self.count)
        return bits if self.count is None or self.count_known else bits + bits_for(self.data.shape[1] + 1)


@dataclass(frozen=True)
class Payload:
    """One message a sender, all senders side by side.

    Attributes:
        fields: by name, in the order in which they are sent.
        paper_bits: bits a row as the method's paper counts them, where it counts otherwise; None: the true ones of the
            fields that are `on_paper`.
    """

    fields: Mapping[str, Field]
    paper_bits: int | None = None

    @property
    def num_rows(self) -> int:
        """M."""
        return next(iter(self.fields.values())).data.shape[0]

    def expect(self, **nums: int) -> tuple[Tensor, ...]:
        """The data of the fields, given the name and the n of each: what a decoder reads its message with.

        Raises:
            WireError: these are not the fields of this message, or not their numbers of entries.
        """
        held = {name: field.data.shape[1] for name, field in self.fields.items()}
        if held != nums:
            raise WireError(
                f"this message holds {_described(held)}; expected {_described(nums)}: it was made by another codec or "
                "for another vector"
            )
        return tuple(self.fields[name].data for name in nums)

    @property
    def bits(self) -> Tensor:
        """[M] int64 true bits of each row's message."""
        each = [field.bits for field in self.fields.values()]
        return torch.stack(each).sum(0)

    @property
    def total_bits(self) -> int | Tensor:
        """Bits of all rows together: an int where the layout decides, else a 0-d tensor left on its device."""
        return _total(list(self.fields.values()), self.num_rows)

    @property
    def total_paper_bits(self) -> int | Tensor:
        """Bits of all rows together as the method's paper counts them; as `total_bits`."""
        if self.paper_bits is not None:
            return self.paper_bits * self.num_rows
        return _total([field for field in self.fields.values() if field.on_paper], self.num_rows)


def _total(fields: Sequence[Field], num_rows: int) -> int | Tensor:
    fixed, varying = 0, []
    for field in fields:
        static = field.static_bits
        if static is None:
            varying.append(field.bits.sum())
        else:
            fixed += static
    total = fixed * num_rows
    return total if not varying else torch.stack(varying).sum() + total


def _described(nums: Mapping[str, int]) -> str:
    return ", ".join(f"{num} {name}" for name, num in nums.items()) or "nothing"
