"""Bits that no sender can have written are refused, with the field, what was there and what was expected."""

import random

import pytest
import torch

from fedcomp.wire import Field, Payload, WireError
from fedcomp.wire.coding import (
    Arithmetic,
    Ascending,
    Bitmap,
    Coding,
    Digits,
    Elias,
    Float,
    Rice,
    RunLength,
    Shortest,
    Unsigned,
)
from fedcomp.wire.coding.packed_bytes import unpack_bits
from fedcomp.wire.packing import FieldLayout, layout, pack, unpack
from tests.looped import looped

CPU = torch.device("cpu")


def _bits(text: str) -> torch.Tensor:
    return torch.tensor([int(bit) for bit in text.replace(" ", "")], dtype=torch.uint8)


REFUSED = [
    (Unsigned(3, 6), "101 110", 2, "an entry of 6 where at most 5 is allowed"),
    (Digits(3), "11110011", 5, "a group of 5 digits that is no number of base 3"),
    (Digits(3), "00000011", 1, "a group of 1 digits that is no number of base 3"),
    (Digits(15), "1111", 1, "an entry of 15 where at most 14 is allowed"),
    (Rice(0, span=5), "0001 01", 2, "the last of 2 gaps ends at index 5 of 5"),
    (Rice(0), "000", 1, "the message ends after 0 of 1 entries"),
    (Ascending(8), "011 011", 2, "indices that are not in ascending order"),
    (Ascending(6), "110", 1, "an entry of 6 where at most 5 is allowed"),
    (Bitmap(2), "0111", 4, "3 bits set where 2 are expected"),
    (Elias(4), "101000", 1, "an entry of 4 where at most 3 is allowed"),
    (Elias(), "11 1111 1000000010000000 1", 1, "the code of a number of 32897 bits"),
    (RunLength(1), "110 11 00 00 00", 2, "a level at index 3 of 2"),
    (RunLength(1), "110 0100 11", 2, "a level at index 2 of 2$"),
    (RunLength(1), "101000 000 000", 2, "an entry of 4 where at most 3 is allowed"),
    (RunLength(2), "100 0 0 101000", 2, "an entry of 4 where at most 2 is allowed"),
    (Shortest((Unsigned(1), Unsigned(2), Unsigned(3))), "11 1", 1, "an entry of 3 where at most 2 is allowed"),
    (Unsigned(9), "100000000", 1, "an entry of 256, more than torch.uint8 holds"),
    (Float(), "0" * 63, 2, "the message ends after 63 of 64 bits"),
]


@looped("coding, text, num, message", REFUSED)
def test_impossible_bits_are_refused(coding: Coding, text: str, num: int, message: str) -> None:
    dtype = torch.uint8 if isinstance(coding, Unsigned) else torch.int64
    with pytest.raises(WireError, match=message):
        coding.read(_bits(text), 0, num, dtype)


CODINGS = [
    *(Arithmetic(), Unsigned(5), Unsigned(5, 20), Digits(3), Digits(5), Rice(2), Rice(2, 40), Ascending(40), Bitmap(3)),
    *(Elias(), Elias(9), RunLength(1), RunLength(5), Shortest((Digits(11), RunLength(5)))),
]


@looped("coding", CODINGS)
@looped("seed", range(60))
def test_any_bits_are_read_or_refused(coding: Coding, seed: int) -> None:
    draw = random.Random(seed)
    num, message = draw.randint(0, 20), draw.choice([draw.randbytes, bytes])(draw.randint(0, 24))
    bits = unpack_bits(torch.tensor(list(message), dtype=torch.uint8))
    try:
        row, end = coding.read(bits, 0, num, torch.int64)
    except WireError:
        return
    assert row.shape == (num,)
    assert int(coding.bits(row[None])) <= end <= len(bits)


def _message() -> tuple[bytes, dict[str, FieldLayout]]:
    payload = Payload({"codes": Field(torch.tensor([[3, 1]]), Unsigned(3)), "more": Field(torch.ones(1, 1), Float())})
    return pack(payload, 0), dict(layout(payload))


def test_cut_and_padded_messages_are_refused() -> None:
    message, known = _message()
    assert unpack([message], known, CPU).fields["codes"].data.tolist() == [[3, 1]]
    with pytest.raises(WireError, match="field more of row 0: the message ends after 26 of 32 bits"):
        unpack([message[:-1]], known, CPU)
    with pytest.raises(WireError, match="row 0: 10 bits after the last field"):
        unpack([message + b"\0"], known, CPU)
    with pytest.raises(WireError, match="row 0: 2 bits after the last field, not the zeros that fill up a byte"):
        unpack([message[:-1] + bytes([message[-1] | 1])], known, CPU)
    with pytest.raises(WireError, match="field codes of row 1: the message ends after 0 of 6 bits"):
        unpack([message, b""], known, CPU)


def test_a_count_beyond_the_row_is_refused() -> None:
    known = {"codes": FieldLayout(4, Unsigned(1), torch.uint8, ragged=True)}
    with pytest.raises(WireError, match="field codes of row 0: an entry of 5 where at most 4 is allowed"):
        unpack([bytes([0b10111110])], known, CPU)


def test_decoders_name_what_they_expect() -> None:
    signs, scales = torch.zeros(2, 7, dtype=torch.uint8), torch.zeros(2, 3)
    payload = Payload({"signs": Field(signs, Unsigned(1)), "scales": Field(scales, Float())})
    signs, scales = payload.expect(signs=7, scales=3)
    assert signs is payload.fields["signs"].data
    assert scales is payload.fields["scales"].data
    for nums in ({"signs": 7}, {"signs": 8, "scales": 3}, {"signs": 7, "scales": 3, "seed": 2}, {}):
        with pytest.raises(WireError, match="this message holds 7 signs, 3 scales; expected .* another codec"):
            payload.expect(**nums)
