"""Payloads to bytes and back: the proof that a message really is as small as the ledger says.

Bits are made and read on the device of the payload; what crosses to the host and back are finished bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fedcomp.wire.coding import Coding, Unsigned, bits_for
from fedcomp.wire.coding.packed_bytes import pack_bits, unpack_bits
from fedcomp.wire.errors import WireError
from fedcomp.wire.payload import Field, Payload


@dataclass(frozen=True)
class FieldLayout:
    """What a receiver knows of a field before a bit arrives: nothing that depends on the data.

    Attributes:
        num: n, entries a row (at most, for a ragged field).
        coding: how an entry is written.
        dtype: of the entries in memory.
        ragged: whether a row sends the first of its entries only.
        known_counts: how many, row by row, where both ends know it; None: a ragged row begins with the number.
        on_paper: as in `Field`.
    """

    num: int
    coding: Coding
    dtype: torch.dtype
    ragged: bool = False
    known_counts: tuple[int, ...] | None = None
    on_paper: bool = True

    @property
    def count_coding(self) -> Unsigned:
        """How the number of a ragged row's entries is written."""
        return _count_coding(self.num)


Layout = Mapping[str, FieldLayout]


def layout(payload: Payload) -> Layout:
    """The layout that sender and receiver share."""
    return {name: _field_layout(field) for name, field in payload.fields.items()}


def pack(payload: Payload, row: int) -> bytes:
    """The bytes of one row's message; the last byte is filled up with zeros."""
    bits = []
    for field in payload.fields.values():
        data = field.data[row]
        if field.count is not None:
            sent = int(field.count[row])
            if not field.count_known:
                bits.append(_count_coding(field.data.shape[1]).write(torch.tensor([sent], device=data.device)))
            data = data[:sent]
        bits.append(field.coding.write(data))
    return pack_bits(torch.cat(bits) if len(bits) > 1 else bits[0]).cpu().numpy().tobytes()


def unpack(messages: list[bytes], known: Layout, device: torch.device) -> Payload:
    """Read one message a row; only the bytes and the layout are used.

    Raises:
        WireError: bytes that no sender of this layout can have written: cut, padded, or with an entry that is not
            allowed. It names the field.
    """
    rows = [_read(message, row, known, device) for row, message in enumerate(messages)]
    fields = {}
    for name, part in known.items():
        make = torch.zeros if part.ragged else torch.empty
        data = make(len(rows), part.num, dtype=part.dtype, device=device)
        for index, row in enumerate(rows):
            data[index, : len(row[name])] = row[name]
        count = torch.tensor([len(row[name]) for row in rows], device=device) if part.ragged else None
        fields[name] = Field(data, part.coding, count, part.known_counts is not None, part.on_paper)
    return Payload(fields)


def _count_coding(num: int) -> Unsigned:
    """How the number of entries of a row is written that has at most `num`."""
    return Unsigned(bits_for(num + 1), num + 1)


def _field_layout(field: Field) -> FieldLayout:
    known = tuple(field.count.tolist()) if field.count is not None and field.count_known else None
    ragged = field.count is not None
    return FieldLayout(field.data.shape[1], field.coding, field.data.dtype, ragged, known, field.on_paper)


def _read(message: bytes, index: int, known: Layout, device: torch.device) -> dict[str, torch.Tensor]:
    bits = unpack_bits(_bytes_of(message).to(device))
    row, at = {}, 0
    for name, part in known.items():
        try:
            num = part.num
            if part.known_counts is not None:
                num = part.known_counts[index]
            elif part.ragged:
                count, at = part.count_coding.read(bits, at, 1, torch.int64)
                num = int(count)
            row[name], at = part.coding.read(bits, at, num, part.dtype)
        except WireError as error:
            raise WireError(f"field {name} of row {index}: {error}") from None
    left = len(bits) - at
    if left >= 8 or (left and message[-1] & ((1 << left) - 1)):
        raise WireError(f"row {index}: {left} bits after the last field, not the zeros that fill up a byte")
    return row


def _bytes_of(message: bytes) -> torch.Tensor:
    """The bytes of a message; a tensor needs some that may be written to, and at least one."""
    return (
        torch.frombuffer(bytearray(message), dtype=torch.uint8)
        if message
        else torch.empty(0, dtype=torch.uint8, device="cpu")
    )
