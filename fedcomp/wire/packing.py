"""Payloads to bytes and back: the proof that a message really is as small as the ledger says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from fedcomp.wire.coding import Coding, Unsigned, bits_for
from fedcomp.wire.payload import Field, Payload


@dataclass(frozen=True)
class FieldLayout:
    """What a receiver knows of a field before a bit arrives: nothing that depends on the data.

    Attributes:
        num: n, entries a row (at most, for a ragged field).
        coding: how an entry is written.
        dtype: of the entries in memory.
        ragged: whether a row begins with the number of its entries.
    """

    num: int
    coding: Coding
    dtype: torch.dtype
    ragged: bool


Layout = Mapping[str, FieldLayout]


def layout(payload: Payload) -> Layout:
    """The layout that sender and receiver share."""
    return {
        name: FieldLayout(field.data.shape[1], field.coding, field.data.dtype, field.count is not None)
        for name, field in payload.fields.items()
    }


def pack(payload: Payload, row: int) -> bytes:
    """The bytes of one row's message; the last byte is filled up with zeros."""
    bits = []
    for field in payload.fields.values():
        data, num = field.data[row].cpu(), field.data.shape[1]
        if field.count is not None:
            sent = int(field.count[row])
            bits.append(Unsigned(bits_for(num + 1)).write(torch.tensor([sent])))
            data = data[:sent]
        bits.append(field.coding.write(data))
    return np.packbits(np.concatenate(bits)).tobytes()


def unpack(messages: list[bytes], known: Layout, device: torch.device) -> Payload:
    """Read one message a row; only the bytes and the layout are used."""
    rows = [_read(np.unpackbits(np.frombuffer(message, np.uint8)), known) for message in messages]
    fields = {}
    for name, part in known.items():
        data = torch.zeros(len(rows), part.num, dtype=part.dtype)
        count = torch.zeros(len(rows), dtype=torch.int64)
        for index, row in enumerate(rows):
            count[index] = row[name].shape[0]
            data[index, : row[name].shape[0]] = row[name]
        fields[name] = Field(data.to(device), part.coding, count.to(device) if part.ragged else None)
    return Payload(fields)


def _read(bits: np.ndarray, known: Layout) -> dict[str, torch.Tensor]:
    row, at = {}, 0
    for name, part in known.items():
        num = part.num
        if part.ragged:
            count, at = Unsigned(bits_for(part.num + 1)).read(bits, at, 1, torch.int64)
            num = int(count)
        row[name], at = part.coding.read(bits, at, num, part.dtype)
    return row
