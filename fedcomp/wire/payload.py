"""A message: named fields whose entries have a declared coding, from which its number of bits follows.

Shape legend: M senders (rows), n entries of a field.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedcomp.wire.coding import Coding, bits_for
from fedcomp.wire.coding.contract import WireError

CountFrom = Callable[[Mapping[str, Tensor]], int]
"""A row's number of entries, given those of the fields before."""


@dataclass(frozen=True)
class Field:
    """Entries of one kind.

    Attributes:
        data: [M, n] floats or non-negative integer codes, of the type that the coding writes.
        coding: how an entry is written.
        count: [M] int64 number of entries that a row sends, its first ones (the others are zero); the number is sent
            before them. None: a row sends all n entries.
        count_known: both ends know `count`, so it is neither sent nor counted.
        count_from: how a receiver knows `count` if it follows from fields before this one in the message: a function of
            a row's entries by field; `count_known` is then True. None: a receiver knows it before the message.
        on_paper: whether the method's paper counts this field, unless `Payload.paper_bits` is given.
    """

    data: Tensor
    coding: Coding
    count: Tensor | None = None
    count_known: bool = False
    on_paper: bool = True
    count_from: CountFrom | None = None

    def check_dtype(self, name: str) -> None:
        """Raise WireError, which names the field, if its coding does not write entries of this type."""
        given, wanted = self.data.dtype, self.coding.dtype
        integers = not (given.is_floating_point or given.is_complex or given == torch.bool)
        if given != wanted and not (wanted is None and integers):
            coding = type(self.coding).__name__
            written = f"{wanted} (convert, as in x.to({wanted}))" if wanted else "integers (as in x.to(torch.uint8))"
            raise WireError(f"field {name}: its entries are {given}, but its coding, {coding}, writes {written}")

    def check_count(self, name: str) -> None:
        """Raise WireError, which names the field, unless there is no count, or a whole number for each row."""
        count, rows = self.count, self.data.shape[0]
        if count is not None and (not isinstance(count, Tensor) or count.shape != (rows,) or count.is_floating_point()):
            given = f"{count.dtype} {tuple(count.shape)}" if isinstance(count, Tensor) else type(count).__name__
            raise WireError(f"field {name}: its count is {given}, but must be torch.int64 ({rows},), one for each row")

    def check_range(self, name: str) -> None:
        """Raise WireError, which names the field, if its coding cannot write an entry, or one that is not sent is no 0.

        Reads from the device.
        """
        num = self.data.shape[0]
        for row in range(num):
            whose = f"field {name} of row {row}" if num > 1 else f"field {name}"
            try:
                self.coding.check(self.sent(row))
            except WireError as error:
                raise WireError(f"{whose}: {error}, as {type(self.coding).__name__} says", row) from None
            behind = self.data[row, len(self.sent(row)) :]
            if behind.any():
                at = len(self.sent(row)) + int(behind.ne(0).byte().argmax())
                raise WireError(
                    f"{whose}: entry {at} is not zero, but behind its count of "
                    f"{len(self.sent(row))}, so that it is not sent: a decoder must not see it",
                    row,
                )

    def sent(self, row: int) -> Tensor:
        """The entries that one row sends."""
        return self.data[row] if self.count is None else self.data[row, : int(self.count[row])]

    def row(self, row: int) -> "Field":
        """One row alone."""
        count = None if self.count is None else self.count[row : row + 1]
        return replace(self, data=self.data[row : row + 1], count=count)

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

    Raises:
        WireError: its fields are not all [M, n], entries not of the coding's type, or a count not [M].
    """

    fields: Mapping[str, Field]
    paper_bits: int | None = None
    measured: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            shapes = {name: tuple(one.data.shape) for name, one in self.fields.items()}
            if any(len(shape) != 2 or shape[0] != self.num_rows for shape in shapes.values()):
                raise WireError(
                    f"a message has fields of shapes {shapes}, but all must be [M, n]: a row for each of the M senders "
                    "(x[:, None] makes [M, 1] of one value each)"
                )
            for name, one in self.fields.items():
                one.check_dtype(name)
                one.check_count(name)
        except AttributeError:  # looked for only then: a round makes many messages
            self._check_kinds()
            raise

    def _check_kinds(self) -> None:
        """Raise WireError for a field that is none, or whose data are no tensor."""
        for name, one in self.fields.items():
            kind = type(one).__name__
            if not isinstance(one, Field):
                coding = ", as in Field(x, Float())" if isinstance(one, Tensor) else ""
                raise WireError(f"field {name} is of the type {kind}, but must be a Field{coding}")
            kind = type(one.data).__name__
            if not isinstance(one.data, Tensor):
                numpys = ": take torch.from_numpy(x)" if kind == "ndarray" else ""
                raise WireError(f"field {name}: its data are of the type {kind}, but must be a tensor{numpys}")

    def check_range(self) -> None:
        """Raise WireError, which names the field, if a coding cannot write an entry; reads from the device."""
        for name, one in self.fields.items():
            one.check_range(name)

    @property
    def num_rows(self) -> int:
        """M. Raises WireError: there are no fields."""
        if not self.fields:
            raise WireError("a message without fields: who sends nothing, sends no message")
        return next(iter(self.fields.values())).data.shape[0]

    def row(self, row: int) -> "Payload":
        """The message of one sender alone."""
        return replace(self, fields={name: one.row(row) for name, one in self.fields.items()}, measured={})

    def expect(self, **nums: int | None) -> tuple[Tensor, ...]:
        """The data of the fields, for a decoder that expects these names with n entries each; None: any number.

        Raises WireError: this message has other fields, or other numbers of entries.
        """
        given = {name: field.data.shape[1] for name, field in self.fields.items()}
        if given != {name: given.get(name) if num is None else num for name, num in nums.items()}:
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


def _described(nums: Mapping[str, int | None]) -> str:
    return ", ".join(f"{'any' if num is None else num} {name}" for name, num in nums.items()) or "nothing"
