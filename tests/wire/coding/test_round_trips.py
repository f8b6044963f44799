"""Every coding, on random rows: what is written is as long as it was counted, and is read back."""

import math
import random

import pytest
import torch

from fedcomp.wire import WireError
from fedcomp.wire.coding import (
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
    run_length,
)
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
    assert torch.equal(back, row) or (row.is_floating_point() and row.isnan().any())
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
    compiled = RunLength(levels).bits(data)
    monkeypatch.setattr(run_length, "COMPILED_FROM", 1 << 30)
    assert torch.equal(compiled, RunLength(levels).bits(data))


@pytest.mark.parametrize("levels", [1, 7])
def test_run_lengths_are_counted_without_reading_the_device_as_with(levels: int) -> None:
    generator = torch.Generator().manual_seed(levels)
    data = torch.randint(0, 2 * levels + 1, (5, 77), generator=generator, dtype=torch.uint8)
    data[torch.rand(5, 77, generator=generator) < torch.tensor([[0.0], [0.5], [0.9], [0.99], [1.0]])] = levels
    count = torch.tensor([0, 1, 40, 76, 77])
    coding = RunLength(levels)
    assert torch.equal(coding._bits_on_device(data, None), coding.bits(data))
    assert torch.equal(coding._bits_on_device(data, count), coding.bits(data, count))
