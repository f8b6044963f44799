"""Arithmetic coding: pinned bits, lengths beside the ideal, and what no sender can have written."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Arithmetic, Coding
from fedcomp.wire.coding.contract import WireError
from fedcomp.wire.packing import layout, pack, unpack
from tests.looped import looped


def ideal(row: Tensor, probability: Tensor) -> float:
    """Bits that the probabilities of ones ask for."""
    chance = torch.where(row > 0, probability.double(), 1 - probability.double())
    return float(-chance.log2().sum())


def _text(bits: Tensor) -> str:
    return "".join(map(str, bits.tolist()))


def test_pinned_bits() -> None:
    row = torch.tensor([1, 1, 0, 1, 1, 1, 1, 1], dtype=torch.uint8)
    # 7 ones; then p = 15/18: the interval is [0.5787, 0.6252), and 38/64 the first number of six bits in it.
    assert _text(Arithmetic().write(row)) == "0111" + "100110"
    # Ones take the lower part: [0.081, 0.081 + 0.729 * 0.9^5) = [0.081, 0.512), and 1/8 is in it.
    sure = torch.tensor([0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9])
    assert _text(Arithmetic(sure).write(row)) == "001"
    assert len(Arithmetic().write(torch.zeros(8, dtype=torch.uint8))) == 4


@looped("num, share", itertools.product([0, 1, 2, 7, 40, 300], [0.0, 1e-9, 0.01, 0.5, 0.9, 1.0]))
@looped("known", [False, True])
def test_round_trip_and_length(num: int, share: float, known: bool) -> None:
    generator = torch.Generator().manual_seed(num)
    row = (torch.rand(num, generator=generator) < share).to(torch.uint8)
    coding = Arithmetic(torch.rand(num, generator=generator)) if known else Arithmetic()
    bits = coding.write(row)
    assert len(bits) == int(coding.bits(row[None]))
    around = torch.cat((torch.tensor([1, 0, 1], dtype=torch.uint8), bits, torch.ones(70, dtype=torch.uint8)))
    read, end = coding.read(around, 3, num, torch.uint8)
    assert torch.equal(read, row)
    assert end == 3 + len(bits)


@looped("share", [0.5, 0.1, 0.003])
def test_length_is_the_entropy(share: float) -> None:
    num = 50_000
    row = (torch.rand(num, generator=torch.Generator().manual_seed(1)) < share).to(torch.uint8)
    ones = int(row.sum())
    got = len(Arithmetic().write(row))
    wanted = ideal(row, torch.full((num,), (ones + 0.5) / (num + 1)))
    header = math.ceil(math.log2(num + 1))
    assert got - header >= wanted * (1 - 2e-3 * (share < 0.01)) - 1
    assert got - header <= wanted * 1.002 + 4
    probability = torch.rand(num, generator=torch.Generator().manual_seed(2)).clamp(0.01, 0.99)
    drawn = (torch.rand(num, generator=torch.Generator().manual_seed(3)) < probability).to(torch.uint8)
    assert len(Arithmetic(probability).write(drawn)) == pytest.approx(ideal(drawn, probability), rel=1e-3)


def test_unlikely_bits_are_dear() -> None:
    row = torch.ones(20, dtype=torch.uint8)
    assert len(Arithmetic(torch.full((20,), 1e-9)).write(row)) > 20 * 15
    assert len(Arithmetic(torch.full((20,), 1 - 1e-9)).write(row)) < 5


def test_foreign_bits_are_refused() -> None:
    row = torch.tensor([1, 0, 0, 1, 0, 0, 0, 0, 1, 0] * 5, dtype=torch.uint8)
    bits = Arithmetic().write(row)
    with pytest.raises(WireError):
        Arithmetic().read(bits[:-1], 0, 50, torch.uint8)
    over = bits.clone()
    over[:6] = 1  # 63 ones among 50
    with pytest.raises(WireError, match="63"):
        Arithmetic().read(over, 0, 50, torch.uint8)


@pytest.mark.parametrize("coding", [Arithmetic(), Arithmetic(torch.linspace(0.05, 0.9, 12))], ids=["counted", "known"])
def test_a_flipped_bit_of_an_arithmetic_code_is_refused_or_another_row(coding: Coding) -> None:
    row = torch.tensor([[0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1]], dtype=torch.uint8)
    payload, refused = Payload({"mask": Field(row, coding)}), 0
    message = pack(payload, 0)
    for place in range(8 * len(message)):
        flipped = bytearray(message)
        flipped[place // 8] ^= 1 << (place % 8)
        try:
            other = unpack([bytes(flipped)], layout(payload), torch.device("cpu"))
        except WireError:
            refused += 1
        else:
            assert not torch.equal(other.fields["mask"].data, row)
            assert pack(other, 0) == bytes(flipped)
    assert refused > 0
