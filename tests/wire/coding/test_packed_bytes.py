"""Bits, bytes and integers beside plain Python, in both forms: numpy's for memory of the host, tensors' elsewhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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

ANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


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


@given(message=st.binary(max_size=40), start=st.integers(0, 9), padding=st.integers(0, 9))
@ANY
def test_bits_of_bytes_and_back(form: str, message: bytes, start: int, padding: int) -> None:
    bits = unpack_bits(_bytes_of(message))
    assert _text(bits) == "".join(f"{byte:08b}" for byte in message)
    some = bits[start : max(len(bits) - padding, start)]  # anywhere in memory, of any length
    text = _text(some)
    filled = text + "0" * (-len(text) % 8)
    assert pack_bits(some).tolist() == [int(filled[at : at + 8], 2) for at in range(0, len(filled), 8)]
    assert nonzero_indices(some).tolist() == [place for place, bit in enumerate(text) if bit == "1"]


@given(width=st.integers(0, 63), data=st.data())
@ANY
def test_integers_of_every_width(form: str, width: int, data: st.DataObject) -> None:
    most = (1 << width) - 1
    numbers = data.draw(st.lists(st.integers(0, most) | st.sampled_from([0, most]), max_size=10))
    above = data.draw(st.integers(0, (1 << 63 - width) - 1)) << width  # only the lowest bits are written
    bits = bits_of(torch.tensor(numbers, dtype=torch.int64) | above, width)
    assert _text(bits) == ("".join(f"{number:0{width}b}" for number in numbers) if width else "")
    later = torch.cat((torch.ones(3, dtype=torch.uint8), bits))[3:]
    assert integers_of(later, width, len(numbers)).tolist() == numbers


@given(size=st.integers(1, 8), data=st.data())
@ANY
def test_bytes_of_integers(form: str, size: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, (1 << 8 * size) - 1), max_size=10))
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
