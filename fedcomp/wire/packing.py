"""Payloads to bytes and back: shows that a message has as many bits as the ledger counts.

Bits are written and read on the payload's device; only packed bytes are copied to the host and back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedcomp.wire.coding import Coding, Unsigned, bits_for
from fedcomp.wire.coding.contract import WireError
from fedcomp.wire.coding.packed_bytes import pack_bits, unpack_bits
from fedcomp.wire.payload import CountFrom, Field, Payload


@dataclass(frozen=True)
class FieldLayout:
    """What a receiver knows of a field in advance; it does not depend on the data.

    Attributes:
        num: n, entries per row (the maximum for a ragged field).
        coding: how an entry is written.
        dtype: of the entries in memory.
        ragged: whether a row sends only its first entries.
        known_counts: number of entries per row, if both ends know it; None: a ragged row begins with the number.
        count_from, on_paper: as in `Field`.
    """

    num: int
    coding: Coding
    dtype: torch.dtype
    ragged: bool = False
    known_counts: tuple[int, ...] | None = None
    on_paper: bool = True
    count_from: CountFrom | None = None


Layout = Mapping[str, FieldLayout]


class UnreadableMessage(WireError):
    """A message that no sender of its layout can have written; its `row` is known."""

    row: int


def layout(payload: Payload) -> Layout:
    """The layout that sender and receiver share."""
    return {name: _field_layout(field) for name, field in payload.fields.items()}


def pack(payload: Payload, row: int) -> bytes:
    """The bytes of one row's message, whose entries fit (`Payload.check_range`); the last byte is padded with zeros.

    Raises WireError: a coding writes another number of bits than it counts.
    """
    bits: list[torch.Tensor] = []
    for name, field in payload.fields.items():
        data, before = field.sent(row), len(bits)
        if field.count is not None and not field.count_known:
            bits.append(_count_coding(field.data.shape[1]).write(torch.tensor([len(data)], device=data.device)))
        bits.append(field.coding.write(data))
        _check_counted(name, field, row, sum(map(len, bits[before:])))
    return pack_bits(torch.cat(bits) if len(bits) > 1 else bits[0]).cpu().numpy().tobytes()


def _check_counted(name: str, field: Field, row: int, written: int) -> None:
    """Raise WireError unless a row of a field counts as many bits as were written, also where its layout says it."""
    counted, fixed, coding = int(field.bits[row]), field.static_bits, type(field.coding).__name__
    if counted != written:
        raise WireError(f"field {name} of row {row}: {coding} writes {written} bits of it, and counts {counted}", row)
    if fixed not in (None, written):
        problem = f"{coding} writes {written} bits of it; its fixed_bits says {fixed}"
        raise WireError(f"field {name} of row {row}: {problem}", row)


def unpack(messages: Sequence[bytes], known: Layout, device: torch.device) -> Payload:
    """Read one message per row, from the bytes and the layout alone.

    Raises:
        UnreadableMessage: bytes that no sender of this layout can have written: truncated, padded, or with an invalid
            entry. It names the field.
    """
    rows = [_read(message, row, known, device) for row, message in enumerate(messages)]
    fields = {}
    for name, part in known.items():
        make = torch.zeros if part.ragged else torch.empty
        num = part.num if part.count_from is None else max((len(row[name]) for row in rows), default=0)
        data = make(len(rows), num, dtype=part.dtype, device=device)
        for index, row in enumerate(rows):
            data[index, : len(row[name])] = row[name]
        count = torch.tensor([len(row[name]) for row in rows], device=device) if part.ragged else None
        known_before = part.known_counts is not None or part.count_from is not None
        fields[name] = Field(data, part.coding, count, known_before, part.on_paper, part.count_from)
    return Payload(fields)


def unpack_as(known: Payload, messages: Sequence[bytes]) -> Payload:
    """As `unpack`, with the layout, the device and the paper's bits of `known`."""
    device = next(iter(known.fields.values())).data.device
    return replace(unpack(messages, layout(known), device), paper_bits=known.paper_bits)


def _count_coding(num: int) -> Unsigned:
    """Coding of a number of entries from 0 to `num`."""
    return Unsigned(bits_for(num + 1), num + 1)


def _field_layout(field: Field) -> FieldLayout:
    ragged, dtype = field.count is not None, field.data.dtype
    if field.count_from is not None:
        return FieldLayout(0, field.coding, dtype, ragged, None, field.on_paper, field.count_from)
    known = tuple(field.count.tolist()) if field.count is not None and field.count_known else None
    return FieldLayout(field.data.shape[1], field.coding, dtype, ragged, known, field.on_paper)


def _read(message: bytes, index: int, known: Layout, device: torch.device) -> dict[str, torch.Tensor]:
    packed = np.frombuffer(bytearray(message), np.uint8)  # a copy, since torch takes writable memory alone
    bits = unpack_bits(torch.from_numpy(packed).to(device))
    row: dict[str, torch.Tensor] = {}
    at = 0
    for name, part in known.items():
        try:
            num = part.num
            if part.count_from is not None:
                num = part.count_from(row)
            elif part.known_counts is not None:
                num = part.known_counts[index]
            elif part.ragged:
                count, at = _count_coding(part.num).read(bits, at, 1, torch.int64)
                num = int(count)
            row[name], at = part.coding.read(bits, at, num, part.dtype)
        except WireError as error:
            raise UnreadableMessage(f"field {name} of row {index}: {error}", index) from None
    remaining = len(bits) - at
    if remaining >= 8 or (remaining and message[-1] & ((1 << remaining) - 1)):
        more = f"{remaining} bits after the last field, not the zeros that fill up a byte"
        raise UnreadableMessage(f"row {index}: {more}", index)
    return row
