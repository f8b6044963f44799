"""Bits and packing on a device, beside plain Python and beside the host's form.

The host reads a few numbers for strict checks, and finished bytes; counted on a CPU stand-in, which takes the forms
that other devices take, notes whatever the host asks a tensor for, and gives new tensors another default device, so
that one that is made without naming its own meets the others and fails.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Digits, Elias, Float, Rice, RunLength, Shortest, Unsigned, packed_bytes
from fedcomp.wire.coding.contract import Coding
from fedcomp.wire.coding.index_sets import Ascending, Bitmap
from fedcomp.wire.packing import layout, pack, unpack
from tests.looped import looped
from tests.operations import Operations, reads


@pytest.fixture(params=["numpy", "tensors"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which form computes; blocks are short, so that rows have several."""
    monkeypatch.setattr(packed_bytes, "_BLOCK", 3)
    if request.param == "tensors":
        monkeypatch.setattr(packed_bytes, "on_host", lambda data: False)
    return request.param


def _text(bits: Tensor) -> str:
    assert bits.dtype == torch.uint8
    return "".join(map(str, bits.tolist()))


def _bytes_of(message: bytes) -> Tensor:
    return torch.tensor(list(message), dtype=torch.uint8)


@looped("seed", range(60))
def test_bits_of_bytes_and_back(form: str, seed: int) -> None:
    draw = random.Random(seed)
    message, start, padding = draw.randbytes(draw.randint(0, 40)), draw.randint(0, 9), draw.randint(0, 9)
    bits = packed_bytes.unpack_bits(_bytes_of(message))
    assert _text(bits) == "".join(f"{byte:08b}" for byte in message)
    some = bits[start : max(len(bits) - padding, start)]  # anywhere in memory, of any length
    text = _text(some)
    filled = text + "0" * (-len(text) % 8)
    assert packed_bytes.pack_bits(some).tolist() == [int(filled[at : at + 8], 2) for at in range(0, len(filled), 8)]
    assert packed_bytes.nonzero_indices(some).tolist() == [place for place, bit in enumerate(text) if bit == "1"]


@looped("width", range(64))
def test_integers_of_every_width(form: str, width: int) -> None:
    most, draw = (1 << width) - 1, random.Random(width)
    numbers = draw.choices([0, most, *(draw.randint(0, most) for _ in range(8))], k=draw.randint(0, 10))
    above = draw.randrange(1 << 63 - width) << width  # only the lowest bits are written
    bits = packed_bytes.bits_of(torch.tensor(numbers, dtype=torch.int64) | above, width)
    assert _text(bits) == ("".join(f"{number:0{width}b}" for number in numbers) if width else "")
    later = torch.cat((torch.ones(3, dtype=torch.uint8), bits))[3:]
    assert packed_bytes.integers_of(later, width, len(numbers)).tolist() == numbers


@looped("size", range(1, 9))
@looped("num", [0, 1, 3, 10])
def test_bytes_of_integers(form: str, size: int, num: int) -> None:
    numbers = [random.Random(place).randrange(1 << 8 * size) for place in range(num)]
    signed = [number - (number >> 63 << 64) for number in numbers]  # eight bytes: modulo 2^64
    written = packed_bytes.bytes_of(torch.tensor(signed, dtype=torch.int64), size)
    assert bytes(written.tolist()) == b"".join(number.to_bytes(size, "big") for number in numbers)
    later = torch.cat((written[:0].new_ones(3), written))[3:]
    assert packed_bytes.unsigned_of(later, size).tolist() == signed


@looped("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_stand_sign_first(form: str, dtype: torch.dtype) -> None:
    values = torch.tensor([-2.0, 1.5, 0.0, float("inf")], dtype=dtype)
    words = values.view(packed_bytes.WORD[dtype.itemsize])
    written = packed_bytes.bytes_of(words, dtype.itemsize)
    assert packed_bytes.unpack_bits(written)[:: 8 * dtype.itemsize].tolist() == [1, 0, 0, 0]
    assert torch.equal(packed_bytes.float_of(written, dtype), values)
    assert torch.equal(packed_bytes.byteswapped(packed_bytes.byteswapped(words)), words)


NUM = 1000


@contextmanager
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Code that runs as on another device, and what the host reads meanwhile."""
    sizes: list[int] = []

    def note(name: str, args: tuple[Any, ...]) -> bool:
        if reads(name, args) or name == "aten::repeat_interleave":
            sizes.append(1)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(packed_bytes, "on_host", lambda data: False)
        for name in ("tolist", "numpy", "cpu", "__array__"):
            patch.setattr(Tensor, name, _noted(getattr(Tensor, name), sizes))
        packed_bytes._table.cache_clear()
        with torch.device("meta"), Operations(note):
            yield sizes


def _noted(method, sizes):
    inside = False

    def noting(self, *args, **kwargs):
        nonlocal inside
        if inside:  # the default device calls it once more
            return method(self, *args, **kwargs)
        inside = True
        sizes.append(self.numel())
        try:
            return method(self, *args, **kwargs)
        finally:
            inside = False

    return noting


def _row(below: int, dtype: torch.dtype, least: int = 0) -> Tensor:
    return torch.randint(least, below, (NUM,), generator=torch.Generator().manual_seed(below)).to(dtype)


STATIC = {
    "bits": (Unsigned(1), _row(2, torch.uint8), 0),
    "unsigned5": (Unsigned(5), _row(32, torch.uint8), 0),
    "unsigned8": (Unsigned(8), _row(256, torch.uint8), 0),
    "unsigned21": (Unsigned(21, 2_000_000), _row(2_000_000, torch.int64), 1),
    "float": (Float(), _row(1 << 20, torch.float32) / 7, 0),
    "half": (Float(torch.float16), _row(100, torch.float16) / 7, 0),
    "trits": (Digits(3), _row(3, torch.uint8), 1),
    "digits11": (Digits(11), _row(11, torch.int16), 2),  # the digits left over at the end are read by themselves
    "digits15": (Digits(15), _row(15, torch.uint8), 1),
    "places": (Ascending(2 * NUM), 2 * torch.arange(NUM), 2),
    "bitmap": (Bitmap(NUM // 2), torch.arange(NUM).remainder(2).to(torch.uint8), 1),
}
"""Coding, row, and the checks that its reader makes."""


@looped("name", STATIC)
def test_codes_of_known_length_are_read_by_their_checks_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    coding, row, checks = STATIC[name]
    expected = coding.write(row)
    with _elsewhere(monkeypatch) as read:
        coding.check(row)
        bits = coding.write(row)
        written = list(read)
        back, end = coding.read(bits, 0, NUM, row.dtype)
    assert torch.equal(bits, expected)
    assert torch.equal(back, row)
    assert end == len(bits)
    assert written[:1] == ([] if isinstance(coding, Float) else [2])  # the least and the largest entry
    assert len(read) - len(written) == checks
    assert max(read, default=0) <= 2


LEVELS = _row(15, torch.uint8)


VARYING = {
    "rice": (Rice(3), _row(40, torch.int64)),
    "rice-span": (Rice(3, 60 * NUM), _row(40, torch.int64)),
    "elias": (Elias(), _row(1 << 40, torch.int64, 1)),
    "run": (RunLength(7), torch.where(LEVELS < 3, LEVELS, 7)),
    "shortest": (Shortest((Digits(15), RunLength(7))), LEVELS),
}


@looped("name", VARYING)
def test_other_codes_read_numbers_of_entries_but_no_entries(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    coding, row = VARYING[name]
    expected = coding.write(row)
    with _elsewhere(monkeypatch) as read:
        bits = coding.write(row)
        back, end = coding.read(bits, 0, NUM, row.dtype)
    assert torch.equal(bits, expected)
    assert torch.equal(back, row)
    assert end == len(bits)
    assert max(read) <= 53  # how many entries there are of each width


def test_only_bytes_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"signs": _row(2, torch.uint8), "trits": _row(3, torch.uint8), "values": _row(1 << 20, torch.float32)}
    codings: dict[str, Coding] = {"signs": Unsigned(1), "trits": Digits(3), "values": Float()}
    fields = {name: Field(data[name][None], coding) for name, coding in codings.items()}
    fields["ragged"] = Field(_row(9, torch.int64)[None], Unsigned(4), count=torch.tensor([NUM // 2]))
    payload = Payload(fields)
    expected = pack(payload, 0)
    with _elsewhere(monkeypatch) as read:
        message = pack(payload, 0)
        crossed = [size for size in read if size > 2]
        packed = len(read)
        received = unpack([message], layout(payload), torch.device("cpu"))
    assert message == expected
    assert set(crossed) == {len(message)}
    assert max(read[packed:]) <= 2
    for name in data:
        assert torch.equal(received.fields[name].data, payload.fields[name].data)
    assert torch.equal(received.fields["ragged"].data[:, : NUM // 2], payload.fields["ragged"].data[:, : NUM // 2])


@dataclass(frozen=True)
class _OverTheHost(Unsigned):
    """A planted fault: entries make a detour over the host."""

    def write(self, row: Tensor) -> Tensor:
        return super().write(torch.tensor(row.tolist(), dtype=row.dtype, device=row.device))


def test_a_detour_over_the_host_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    row = _row(32, torch.uint8)
    with _elsewhere(monkeypatch) as read:
        _OverTheHost(5).write(row)
    assert max(read) == NUM


def test_a_tensor_without_a_device_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with _elsewhere(monkeypatch), pytest.raises((RuntimeError, NotImplementedError)):
        torch.cat((torch.zeros(1, dtype=torch.uint8), STATIC["bits"][1])).tolist()
