"""Candidates are Philox as Random123 has it, cut as laid down, and a function of their names alone."""

from dataclasses import replace

import torch

from fedcomp.compressor.mrc.candidates import BITS, Candidates, streams, stretch, uniform
from fedcomp.random.keys import Key
from tests.looped import looped

WORDS = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
"""Philox4x32-10 of counter 0 under key 0: Random123's known answer."""
ZERO = torch.zeros(1, 2, dtype=torch.int64)
KEYS = streams("per_client", Key(("run", 0, "round", 3)), torch.tensor([4, 9]))


@looped("bits", BITS)
def test_uniforms_are_the_parts_of_the_known_answer_from_the_low_end_on(bits) -> None:
    drawn = uniform(ZERO[0, :, None], Candidates(ZERO, 1, bits), 0, torch.tensor(0), torch.arange(128 // bits))
    whole = b"".join(word.to_bytes(4, "little") for word in WORDS)
    size = bits // 8
    assert drawn.tolist() == [int.from_bytes(whole[at : at + size], "little") for at in range(0, 16, size)]


def test_all_ones_known_answer_and_the_order_of_the_counter() -> None:
    ones = torch.full((1, 2), 0xFFFFFFFF)
    top = Candidates(ones, 1, 32, domain=0xFFFFFFFF)
    # counter = (e >> 2, i, l, domain), all of them 2^32 - 1
    coordinate = torch.arange(4) + (0xFFFFFFFF << 2)
    drawn = uniform(ones[0, :, None], top, 0xFFFFFFFF, torch.tensor(0xFFFFFFFF), coordinate)
    assert drawn.tolist() == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@looped("bits", BITS)
def test_a_stretch_is_its_coordinates_one_by_one(bits) -> None:
    candidates = Candidates(KEYS, 5, bits)
    for begin, end in ((0, 1), (0, 64), (3, 50), (17, 18), (31, 33)):
        each = uniform(KEYS[1, :, None, None], candidates, 2, torch.arange(5)[:, None], torch.arange(begin, end))
        assert torch.equal(stretch(KEYS[1], candidates, 2, begin, end), each)


def test_any_change_of_name_changes_the_bits_and_the_same_name_gives_the_same() -> None:
    here = Candidates(KEYS, 4, 32)
    drawn = stretch(KEYS[0], here, 0, 0, 64)
    assert torch.equal(stretch(KEYS[0].clone(), replace(here), 0, 0, 64), drawn)
    later = streams("per_client", Key(("run", 0, "round", 4)), torch.tensor([4]))[0]
    shared = streams("shared", Key(("run", 0, "round", 3)), torch.tensor([4]))[0]
    others = [
        stretch(later, here, 0, 0, 64),
        stretch(shared, here, 0, 0, 64),
        stretch(KEYS[1], here, 0, 0, 64),
        stretch(KEYS[0], here, 1, 0, 64),
        stretch(KEYS[0], replace(here, domain=1), 0, 0, 64),
        drawn.roll(1, 0),
        drawn.roll(4, 1),
    ]
    for other in others:
        assert float((other == drawn).double().mean()) < 0.02  # of 32 bits, two are equal once in 2^32


def test_streams_follow_the_client_not_its_place() -> None:
    key = Key(("run", 1))
    assert torch.equal(
        streams("per_client", key, torch.tensor([9, 4])), streams("per_client", key, torch.tensor([4, 9])).flip(0)
    )
    assert torch.equal(streams("shared", key, torch.tensor([9, 4])), streams("shared", key, torch.tensor([1])))


@looped("bits", BITS)
def test_ones_have_the_threshold_s_probability_exactly(bits) -> None:
    # 10 thresholds, 200,000 draws each; standard error at most 0.0011.
    thresholds = torch.linspace(1, 2**bits - 1, 10, dtype=torch.float64).round()
    ones = stretch(KEYS[0], Candidates(KEYS, 20_000, bits), 0, 0, 10) < thresholds
    ones = torch.cat(
        [ones, *[stretch(KEYS[0], Candidates(KEYS, 20_000, bits), r, 0, 10) < thresholds for r in range(1, 10)]]
    )
    chance = thresholds / 2**bits
    assert ((ones.double().mean(0) - chance).abs() <= 4.5 * (chance * (1 - chance) / 200_000).sqrt() + 1e-9).all()
