"""Sorted, cut, dealt."""

import pytest
import torch

from fedcomp.partition.shards import Shards
from fedcomp.partition.summary import label_counts
from fedcomp.random.keys import Key

KEY = Key(("partition", 0))


def test_shards_of_a_small_table():
    labels = torch.tensor([1, 0, 1, 0, 2, 2, 0, 1])  # sorted, stable: 1 3 | 6 0 | 2 7 | 4 5
    parts = Shards(2).split(labels, 8, 2, KEY)
    shards = {(1, 3), (6, 0), (2, 7), (4, 5)}
    assert {tuple(part[run].tolist()) for part in parts for run in (slice(0, 2), slice(2, 4))} == shards


def test_few_labels_a_client_and_equal_sizes():
    labels = torch.arange(6000) % 10
    parts = Shards(2).split(labels, 6000, 100, KEY)
    assert {len(part) for part in parts} == {60}
    held = (label_counts(parts, labels, 10) > 0).sum(1)
    assert int(held.max()) == 2
    assert 0.02 < float((held == 1).double().mean()) < 0.25  # 19/199 pair up with their own class


def test_shards_are_dealt_at_random():
    labels = torch.arange(6000) % 10
    held = [label_counts(Shards(2).split(labels, 6000, 100, Key((seed,))), labels, 10) for seed in range(2)]
    assert not torch.equal(*held)


def test_more_shards_than_samples():
    line = r"shards_per_client is 3: 12 shards for 4 clients, but only 10 samples; at most 2 a client"
    with pytest.raises(ValueError, match=line):
        Shards(3).split(torch.arange(10), 10, 4, KEY)
