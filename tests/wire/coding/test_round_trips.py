"""Every coding, on random rows: what is written is as long as it was counted, and is read back; others are refused."""

import math
import random

import pytest
import torch

from fedcomp.wire import Field, Payload, WireError
from fedcomp.wire.coding import Arithmetic, Digits, Elias, Float, Rice, RunLength, Shortest, Unsigned, run_length
from fedcomp.wire.coding.contract import Coding
from fedcomp.wire.coding.index_sets import Ascending, Bitmap
from fedcomp.wire.coding.packed_bytes import unpack_bits
from fedcomp.wire.packing import FieldLayout, layout, pack, unpack
from tests.looped import looped

INTEGERS = {
    "unsigned1": (Unsigned(1), 0, 1, torch.uint8),
    "unsigned3": (Unsigned(3, 7), 0, 6, torch.uint8),
    "unsigned8": (Unsigned(8), 0, 255, torch.uint8),
    "unsigned13": (Unsigned(13), 0, 2**13 - 1, torch.int64),
    "unsigned16": (Unsigned(16), 0, 2**16 - 1, torch.int32),
    "unsigned32": (Unsigned(32), 0, 2**32 - 1, torch.int64),
    "unsigned63": (Unsigned(63), 0, 2**63 - 1, torch.int64),
    "trits": (Digits(3), 0, 2, torch.uint8),
    "digits5": (Digits(5), 0, 4, torch.int16),
    "digits7": (Digits(7), 0, 6, torch.int64),
    "digits257": (Digits(257), 0, 256, torch.int32),
    "digits19": (Digits(19), 0, 18, torch.uint8),  # 15 of the largest take all 64 bits
    "digits15": (Digits(15), 0, 14, torch.uint8),
    "rice0": (Rice(0), 0, 100, torch.int64),
    "rice4": (Rice(4), 0, 1000, torch.int32),
    "elias": (Elias(), 1, 2**53 - 1, torch.int64),
    "elias-small": (Elias(20), 1, 19, torch.uint8),
    "run1": (RunLength(1), 0, 2, torch.uint8),
    "run300": (RunLength(300), 0, 600, torch.int16),
    "shortest": (Shortest((Unsigned(3, 7), Digits(7), RunLength(3))), 0, 6, torch.uint8),
}
FLOATS = [(Float(dtype), dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64)]


def _check(coding: Coding, row: torch.Tensor) -> None:
    """In the middle of a message, of all entries and of the first ones only."""
    bits = coding.write(row)
    assert len(bits) == int(coding.bits(row[None]))
    assert coding.fixed_bits(len(row)) in (None, len(bits))
    padded = torch.cat((row, torch.zeros_like(row[:1])))
    ragged = coding.bits(torch.stack((padded, padded)), torch.tensor([len(row), 0]))
    assert ragged.tolist() == [len(bits), len(coding.write(row[:0]))]
    message = torch.cat((torch.ones(3, dtype=torch.uint8), bits, torch.ones(5, dtype=torch.uint8)))
    back, end = coding.read(message, 3, len(row), row.dtype)
    assert torch.equal(back.view(torch.uint8), row.view(torch.uint8))  # bit for bit: a NaN, and the sign of a zero
    assert back.dtype == row.dtype
    assert end == 3 + len(bits)
    if len(bits):
        with pytest.raises(WireError, match="ends after"):
            coding.read(bits[:-1], 0, len(row), row.dtype)


@looped("name", INTEGERS)
@looped("num", [0, 1, 2, 3, 8, 13, 50])
def test_integers(name: str, num: int) -> None:
    (coding, least, most, dtype), draw = INTEGERS[name], random.Random(num)
    some = [max(least, draw.randint(least, most) >> shift) for shift in (0, 1, 7, 30, 50)]
    _check(coding, torch.tensor(draw.choices([least, most, *some], k=num), dtype=dtype))
    _check(coding, torch.full((num,), most, dtype=dtype))


@looped("coding, dtype", FLOATS)
@looped("values", [[], [0.0, -0.0, 1.0], [math.inf, -math.inf, 1e-45, 3.4e38, -1.1754942e-38], [math.nan, 5.0]])
def test_floats(coding: Float, dtype: torch.dtype, values: list[float]) -> None:
    _check(coding, torch.tensor(values, dtype=dtype))


@looped("num", [0, 1, 2, 5, 20, 50, 98, 99, 100])
def test_sets_of_places(num: int) -> None:
    places = random.Random(num).sample(range(100), num)
    index = torch.tensor(sorted(places), dtype=torch.int64)
    _check(Ascending(100), index)
    _check(Rice(3, span=100), torch.diff(index, prepend=torch.tensor([-1])) - 1)
    row = torch.zeros(100, dtype=torch.uint8).index_fill_(0, index, 1)
    back, _ = Bitmap(len(places)).read(Bitmap(len(places)).write(row), 0, 100, torch.uint8)
    assert torch.equal(back, row)


@looped("num", [0, 1, 7, 2**16 - 1, 2**16, 2**16 + 1])
@looped("coding", [Unsigned(5), Unsigned(21), Digits(3), Digits(11), Elias(), RunLength(9)])
def test_long_rows(coding: Coding, num: int) -> None:
    row = torch.randint(1, 11, (num,), generator=torch.Generator().manual_seed(num))
    _check(coding, row % 3 if coding == Digits(3) else row)


@pytest.mark.parametrize("levels", [1, 9, 5000])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.99, 0.9999, 1.0])
def test_compiled_counts_of_run_lengths_are_those_of_the_twin(levels: int, zeros: float, monkeypatch) -> None:
    generator = torch.Generator().manual_seed(levels)
    data = torch.randint(0, 2 * levels + 1, (2, 70_001), generator=generator, dtype=torch.int16)
    data[torch.rand(2, 70_001, generator=generator) < zeros] = levels
    counts = None, torch.tensor([70_001, 33])
    compiled = [RunLength(levels).bits(data, count) for count in counts]
    monkeypatch.setattr(run_length, "COMPILED_FROM", 1 << 30)  # and a row at a time
    assert all(torch.equal(RunLength(levels).bits(data, count), one) for count, one in zip(counts, compiled))
    assert RunLength(levels).bits(data[:0]).tolist() == []


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
    (Shortest((Unsigned(1), Unsigned(2))), "1 01", 1, "a row in coding 1, which is to be in coding 0"),
    (Unsigned(9), "100000000", 1, "an entry of 256, more than torch.uint8 holds"),
    (Float(), "0" * 63, 2, "the message ends after 63 of 64 bits"),
    (Arithmetic(), "111111" + "0" * 46, 50, "an entry of 63 where at most 50 is allowed"),
    (Arithmetic(), "001111 001100010011101001001110000101010110001011101", 50, "not the arithmetic code of 50 entries"),
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
    assert torch.equal(coding.write(row), bits[:end]), "no row has two codes"


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
