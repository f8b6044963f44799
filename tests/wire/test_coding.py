"""Exact bits on tiny inputs, round trips on odd ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedcomp.wire.coding import Float, Rice, Unsigned, bits_for


def _text(bits: np.ndarray) -> str:
    return "".join(map(str, bits.tolist()))


def test_bits_for() -> None:
    assert [bits_for(num) for num in (0, 1, 2, 3, 4, 5, 256, 257)] == [0, 0, 1, 2, 2, 3, 8, 9]


def test_unsigned_is_pinned() -> None:
    assert _text(Unsigned(3).write(torch.tensor([5, 0, 7]))) == "101000111"
    assert _text(Unsigned(0).write(torch.tensor([0, 0]))) == ""


@pytest.mark.parametrize("value", [-1, 8])
def test_unsigned_refuses_what_does_not_fit(value: int) -> None:
    with pytest.raises(AssertionError, match="do not fit"):
        Unsigned(3).write(torch.tensor([1, value]))


def test_float_is_pinned() -> None:
    assert _text(Float().write(torch.tensor([-2.0]))) == "1" + "10000000" + "0" * 23
    assert _text(Float(torch.float16).write(torch.tensor([1.0], dtype=torch.float16))) == "0" + "01111" + "0" * 10
    assert _text(Float(torch.bfloat16).write(torch.tensor([1.0], dtype=torch.bfloat16))) == "0" + "01111111" + "0" * 7


def test_rice_is_pinned() -> None:
    # r = 1: 0 -> 1|0, 3 -> 01|1, 4 -> 001|0; all unary parts first.
    assert _text(Rice(1).write(torch.tensor([0, 3, 4]))) == "1" + "01" + "001" + "0" + "1" + "0"
    assert Rice(1).bits(torch.tensor([[0, 3, 4]])).tolist() == [[2, 3, 4]]


CODINGS = [
    (Unsigned(1), torch.uint8),
    (Unsigned(13), torch.int64),
    (Float(), torch.float32),
    (Float(torch.float16), torch.float16),
    (Float(torch.bfloat16), torch.bfloat16),
    (Rice(0), torch.int64),
    (Rice(4), torch.int32),
]


@pytest.mark.parametrize(("coding", "dtype"), CODINGS, ids=str)
@pytest.mark.parametrize("num", [0, 1, 7, 100])
def test_round_trip_in_the_middle_of_a_message(coding, dtype, num) -> None:
    generator = torch.Generator().manual_seed(num)
    if dtype.is_floating_point:
        row = torch.randn(num, generator=generator).to(dtype)
    else:
        row = torch.randint(0, 2 if coding == Unsigned(1) else 100, (num,), generator=generator).to(dtype)
    bits = coding.write(row)
    assert len(bits) == int(coding.bits(row[None]).sum())
    message = np.concatenate([np.ones(3, np.uint8), bits, np.ones(5, np.uint8)])
    back, end = coding.read(message, 3, num, dtype)
    assert torch.equal(back, row)
    assert back.dtype == dtype
    assert end == 3 + len(bits)


def test_nan_and_minus_zero_survive() -> None:
    row = torch.tensor([float("nan"), -0.0, float("inf"), 1e-45])
    back, _ = Float().read(Float().write(row), 0, 4, torch.float32)
    assert torch.equal(back.view(torch.int32), row.view(torch.int32))


def test_worst_case_of_gaps_holds_and_is_reached() -> None:
    num, span = 10, 1000
    code = Rice.for_gaps(num, span)
    worst = code.worst_case(num, span)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        places = torch.randperm(span, generator=generator)[:num].sort().values
        gaps = torch.diff(places, prepend=torch.tensor([-1])) - 1
        assert int(code.bits(gaps[None]).sum()) <= worst
    last = torch.zeros(1, num, dtype=torch.int64)
    last[0, -1] = span - num
    assert int(code.bits(last).sum()) == worst
