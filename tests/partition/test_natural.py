"""Owners as clients: whole owners, small ones left out, and which of them where there are more than clients."""

import pytest
import torch

from fedcomp.partition.contract import check_parts
from fedcomp.partition.natural import Natural
from fedcomp.random.keys import Key
from tests.looped import looped

KEY = Key(("partition", 0))
OWNERS = torch.tensor([7, 2, 7, 2, 2, 5, 9, 9])


def lists(parts):
    return [part.tolist() for part in parts]


def test_each_owner_is_a_client():
    parts = Natural().split(None, 8, None, KEY, OWNERS)
    check_parts(parts, 8)
    assert lists(parts) == [[1, 3, 4], [5], [0, 2], [6, 7]]
    assert lists(Natural().split(None, 8, 4, KEY, OWNERS)) == lists(parts)


def test_small_owners_are_left_out():
    assert lists(Natural(min_size=2).split(None, 8, None, KEY, OWNERS)) == [[1, 3, 4], [0, 2], [6, 7]]
    assert lists(Natural(min_size=3).split(None, 8, 1, KEY, OWNERS)) == [[1, 3, 4]]


def test_fewer_clients_than_owners_are_drawn_evenly():
    owners, times = torch.arange(10).repeat(3), torch.zeros(10)
    for seed in range(1000):
        parts = Natural().split(None, 30, 3, Key((seed,)), owners)
        drawn = [int(owners[part[0]]) for part in parts]
        assert drawn == sorted(set(drawn))
        assert all(set(owners[part].tolist()) == {owner} for part, owner in zip(parts, drawn))
        times[drawn] += 1
    assert float((times - 300).abs().max()) < 5 * (1000 * 0.3 * 0.7) ** 0.5


@looped(
    "partition, num_clients, owners, line",
    [
        (Natural(), 2, None, r"this dataset does not say who owns them: take a dataset that does"),
        (Natural(), 5, OWNERS, r"num_clients is 5, but 4 of 4 owners .*: take 1 to 4, or null for all"),
        (Natural(), 0, OWNERS, r"num_clients is 0, but 4 of 4 owners"),
        (Natural(min_size=2), 4, OWNERS, r"num_clients is 4, but 3 of 4 owners have partition.min_size=2"),
        (Natural(min_size=4), None, OWNERS, r"min_size is 4, but the largest of 4 owners has 3 training samples"),
    ],
)
def test_what_it_refuses(partition, num_clients, owners, line):
    with pytest.raises(ValueError, match=line) as error:
        partition.split(None, 8, num_clients, KEY, owners)
    assert "\n" not in str(error.value)
