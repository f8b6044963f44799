"""Keys: known answers, independence of order and place, uniformity with its standard error."""

import numpy as np
import torch

from fedcomp.random.keys import Key
from fedcomp.random.philox import MASK, philox_numpy, philox_torch

# From the reference implementation's kat_vectors file (Random123): philox 4x32, 10 rounds.
PI = ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))


def _words(key, counter):
    numpy = [int(word) for word in philox_numpy(key, np.array(counter, np.uint64).reshape(4, 1))[:, 0]]
    assert numpy == [int(word) for word in philox_torch(key, torch.tensor(counter).view(4, 1))[:, 0]]
    return numpy


def test_philox_known_answers() -> None:
    assert _words((0, 0), [0] * 4) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert _words((MASK, MASK), [MASK] * 4) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert _words(PI[1], list(PI[0])) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_words_follow_the_name_alone() -> None:
    key = Key(("run", 0)).fold_in("mask", 3)
    words = key.bits(torch.tensor([5, 2, 9]), 7)
    assert torch.equal(words, Key(("run", 0, "mask", 3)).bits(torch.tensor([5, 2, 9]), 7))
    assert torch.equal(words[1:2], key.bits(torch.tensor([2]), 7))
    assert torch.equal(words[:, :3], key.bits(torch.tensor([5, 2, 9]), 3))
    for other in (Key(("run", 1, "mask", 3)), key.fold_in(0), Key(("run", 0, "mask", "3"))):
        assert not torch.equal(words, other.bits(torch.tensor([5, 2, 9]), 7))


def test_clients_beyond_32_bits_differ() -> None:
    words = Key(("a",)).bits(torch.tensor([7, 7 + (1 << 32)]), 4)
    assert not torch.equal(words[0], words[1])


def test_no_draws_and_no_rows() -> None:
    assert Key().bits(torch.arange(3), 0).shape == (3, 0)
    assert Key().bits(torch.arange(0), 5).shape == (0, 5)
    assert Key().bits(torch.arange(3, device="meta"), 9).shape == (3, 9)  # by torch, as on a GPU


def test_generator_is_the_same_each_time() -> None:
    one, two = (torch.rand(3, generator=Key(("g",)).generator()) for _ in range(2))
    assert torch.equal(one, two)
    assert Key(("g",)).generator().initial_seed() == Key(("g",)).seed >> 1


def test_a_subset_is_decided_by_every_bit_of_a_word() -> None:
    """Between words that differ in their last bits alone, too."""
    key, ids, num = Key(("subset",)), torch.arange(3), 4000
    words, order = key.bits(ids, num).sort(dim=1, stable=True)
    rows, close = torch.nonzero((words[:, 1:] >> 8) == (words[:, :-1] >> 8), as_tuple=True)
    backwards = order[rows, close] > order[rows, close + 1]  # the first of the two places has the larger word
    assert backwards.any()
    for row, rank in zip(rows.tolist(), close.tolist(), strict=True):
        assert torch.equal(key.choice(ids[row : row + 1], rank + 1, num)[0], order[row, : rank + 1].sort().values)
