"""Bits, bytes and integers beside plain Python, in both forms: numpy's for memory of the host, tensors' elsewhere."""

import random

import pytest
import torch
from torch import Tensor

from fedcomp.wire.coding import packed_bytes
from fedcomp.wire.coding.packed_bytes import (
    bits_of,
    bytes_of,
    byteswapped,
    float_of,
    integers_of,
    nonzero_indices,
    pack_bits,
    unpack_bits,
    unsigned_of,
)
from tests.looped import looped


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
    bits = unpack_bits(_bytes_of(message))
    assert _text(bits) == "".join(f"{byte:08b}" for byte in message)
    some = bits[start : max(len(bits) - padding, start)]  # anywhere in memory, of any length
    text = _text(some)
    filled = text + "0" * (-len(text) % 8)
    assert pack_bits(some).tolist() == [int(filled[at : at + 8], 2) for at in range(0, len(filled), 8)]
    assert nonzero_indices(some).tolist() == [place for place, bit in enumerate(text) if bit == "1"]


@looped("width", range(64))
def test_integers_of_every_width(form: str, width: int) -> None:
    most, draw = (1 << width) - 1, random.Random(width)
    numbers = draw.choices([0, most, *(draw.randint(0, most) for _ in range(8))], k=draw.randint(0, 10))
    above = draw.randrange(1 << 63 - width) << width  # only the lowest bits are written
    bits = bits_of(torch.tensor(numbers, dtype=torch.int64) | above, width)
    assert _text(bits) == ("".join(f"{number:0{width}b}" for number in numbers) if width else "")
    later = torch.cat((torch.ones(3, dtype=torch.uint8), bits))[3:]
    assert integers_of(later, width, len(numbers)).tolist() == numbers


@looped("size", range(1, 9))
@looped("num", [0, 1, 3, 10])
def test_bytes_of_integers(form: str, size: int, num: int) -> None:
    numbers = [random.Random(place).randrange(1 << 8 * size) for place in range(num)]
    signed = [number - (number >> 63 << 64) for number in numbers]  # eight bytes: modulo 2^64
    written = bytes_of(torch.tensor(signed, dtype=torch.int64), size)
    assert bytes(written.tolist()) == b"".join(number.to_bytes(size, "big") for number in numbers)
    later = torch.cat((written[:0].new_ones(3), written))[3:]
    assert unsigned_of(later, size).tolist() == signed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_floats_stand_sign_first(form: str, dtype: torch.dtype) -> None:
    values = torch.tensor([-2.0, 1.5, 0.0, float("inf")], dtype=dtype)
    words = values.view(packed_bytes.WORD[dtype.itemsize])
    written = bytes_of(words, dtype.itemsize)
    assert unpack_bits(written)[:: 8 * dtype.itemsize].tolist() == [1, 0, 0, 0]
    assert torch.equal(float_of(written, dtype), values)
    assert torch.equal(byteswapped(byteswapped(words)), words)
