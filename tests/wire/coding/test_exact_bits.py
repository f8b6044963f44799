"""Exact bits on tiny inputs: of every coding, of arithmetic codes beside the ideal, of the best Rice code of gaps."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from fedcomp.wire import Field, Payload, WireError
from fedcomp.wire.coding import Arithmetic, Digits, Elias, Float, Rice, RunLength, Shortest, Unsigned, bits_for
from fedcomp.wire.coding.contract import Coding
from fedcomp.wire.coding.index_sets import Ascending, Bitmap
from fedcomp.wire.packing import layout, pack, unpack
from tests.looped import looped


def test_bits_for() -> None:
    assert [bits_for(num) for num in (0, 1, 2, 3, 4, 5, 256, 257)] == [0, 0, 1, 2, 2, 3, 8, 9]


# P. Elias, 1975, table III.
OMEGA = {1: "0", 2: "100", 3: "110", 4: "101000", 7: "101110", 8: "1110000", 15: "1111110", 16: "10100100000"}
PINNED = [
    (Unsigned(3), [5, 0, 7], "101 000 111"),
    (Unsigned(0), [0, 0], ""),
    (Float(), [-2.0], "1 10000000" + "0" * 23),
    (Float(torch.float16), [1.0], "0 01111" + "0" * 10),
    (Float(torch.bfloat16), [1.0], "0 01111111" + "0" * 7),
    (Rice(1), [0, 3, 4], "1 01 001  0 1 0"),  # 0 -> 1|0, 3 -> 01|1, 4 -> 001|0; all unary parts first
    # 2 + 1*3 + 0*9 + 2*27 + 1*81 = 140; the sixth begins a byte that is filled up.
    (Digits(3), [2, 1, 0, 2, 1, 2], "10001100 00000010"),
    *((Elias(), [number], code) for number, code in OMEGA.items()),
    # 1 -> 0, 4 -> 10 100 0, 3 -> 11 0: leading bits 0 1 1, then 0 of 4 and 1 of 3, leading bits 1 0, then 00 of 4.
    (Elias(), [1, 4, 3], "011 01 10 00 0"),
    # Levels 0 0 -2 1 of s = 2: 2 + 1 of them -> 110; distances 3, 1 -> 1 0 | 1 | 0; signs - +; magnitudes 2, 1.
    (RunLength(2), [2, 2, 0, 3], "110 1010 01 1000"),
    (RunLength(1), [1, 1, 0, 2], "110 1010 01"),  # one level needs no magnitudes
    (RunLength(1), [1, 1, 1], "0"),
    (Shortest((Unsigned(2, 3), RunLength(1))), [1] * 20, "1 0"),
    (Shortest((Unsigned(2, 3), RunLength(1))), [2] * 20, "0" + "10" * 20),
    (Ascending(6), [1, 5], "001 101"),
    (Bitmap(1), [0, 1, 0], "010"),
    # 7 ones; then p = 15/18: the interval is [0.5787, 0.6252), and 38/64 the first number of six bits in it.
    (Arithmetic(), [1, 1, 0, 1, 1, 1, 1, 1], "0111 100110"),
    (Arithmetic(), [0] * 8, "0000"),
    # Ones take the lower part: [0.081, 0.081 + 0.729 * 0.9^5) = [0.081, 0.512), and 1/8 is in it.
    (Arithmetic(torch.tensor([0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9])), [1, 1, 0, 1, 1, 1, 1, 1], "001"),
]


@looped("coding, entries, text", PINNED)
def test_bits_are_pinned(coding: Coding, entries: list[float], text: str) -> None:
    row = torch.tensor(entries, dtype=coding.dtype)
    bits = coding.write(row)
    assert "".join(map(str, bits.tolist())) == text.replace(" ", "")
    assert coding.bits(row[None]).tolist() == [len(bits)]


@looped("value", [-1, 8])
def test_unsigned_refuses_what_does_not_fit(value: int) -> None:
    with pytest.raises(WireError, match=f"an entry of {value} where 0 to 7 are allowed"):
        Unsigned(3).check(torch.tensor([1, value]))


def test_rows_are_counted_one_by_one() -> None:
    assert Rice(1).bits(torch.tensor([[0, 3, 4], [1, 1, 1]])).tolist() == [9, 6]
    assert Rice(1).bits(torch.tensor([[0, 3, 4]]), torch.tensor([2])).tolist() == [5]
    assert Digits(5).bits(torch.zeros(4, 28), torch.tensor([0, 4, 27, 28])).tolist() == [0, 16, 64, 72]


def test_digits_take_whole_bytes_where_that_is_shorter() -> None:
    assert [Digits(3).fixed_bits(num) for num in (0, 1, 5, 6, 1_181_536)] == [0, 8, 8, 16, 8 * 236_308]
    # 27 digits of base 5 in 8 bytes; what is left over in as few bytes as hold it: 3 in one, 4 in two.
    assert [Digits(5).fixed_bits(num) for num in (1, 3, 4, 27, 28)] == [8, 8, 16, 64, 72]
    # Bases 4, 15 and 255 gain nothing: 2, 4 and 8 bits each.
    assert [Digits(base).fixed_bits(27) for base in (4, 15, 255)] == [54, 108, 216]
    assert Shortest((Unsigned(2), Digits(3))).fixed_bits(20) == 1 + 32


def _omega(number: int) -> str:
    """The code by its definition."""
    code = "0"
    while number > 1:
        code, number = f"{number:b}" + code, number.bit_length() - 1
    return code


def test_omega_lengths_at_every_power_of_two() -> None:
    numbers = [number for power in range(1, 53) for number in (2**power - 1, 2**power, 2**power + 1)]
    assert Elias().bits(torch.tensor(numbers)[:, None]).tolist() == [len(_omega(number)) for number in numbers]
    for number in numbers:
        assert sorted(map(str, Elias().write(torch.tensor([number])).tolist())) == sorted(_omega(number))


def test_the_worst_case_is_the_longest_of_all_messages() -> None:
    for span in (1, 5, 8):
        for num in range(1, min(span, 4) + 1):
            gaps = [row for row in itertools.product(range(span), repeat=num) if sum(row) <= span - num]
            for parameter in range(4):
                bits = Rice(parameter).bits(torch.tensor(gaps))
                assert int(bits.max()) == Rice(parameter).worst_case(num, span)


def test_the_parameter_has_the_best_worst_case() -> None:
    for num, span in ((1, 1), (1, 100), (30, 1000), (500, 1000), (1000, 1000), (58_000, 1_933_258)):
        best = Rice.for_gaps(num, span)
        assert best.span == span
        cases = [Rice(parameter).worst_case(num, span) for parameter in range(24)]
        assert cases[best.parameter] == min(cases)


def ideal(row: Tensor, probability: Tensor) -> float:
    """Bits that the probabilities of ones ask for."""
    chance = torch.where(row > 0, probability.double(), 1 - probability.double())
    return float(-chance.log2().sum())


@looped("num, share", itertools.product([0, 1, 2, 7, 40, 300, 100_000], [0.0, 1e-5, 0.01, 0.5, 0.9, 1.0]))
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


@looped("coding", [Arithmetic(), Arithmetic(torch.linspace(0.05, 0.9, 12))])
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
