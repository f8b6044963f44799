"""Samples dealt by class: FedMRN's Non-IID-2, as counted in its official code, the truly random variant, shards."""

from collections import Counter

import pytest
import torch

from fedcomp.partition.labels import Labels
from fedcomp.partition.shards import Shards
from fedcomp.partition.summary import label_counts
from fedcomp.random.keys import Key

KEY = Key(("partition", 0))


def label_sets(parts, labels):
    return [tuple(labels[part].unique().tolist()) for part in parts]


def test_100_clients_with_3_of_10_labels_make_10_sets():
    labels = torch.arange(60_000) % 10
    parts = Labels(3).split(labels, 60_000, 100, KEY)
    sets = label_sets(parts, labels)
    assert sets[:4] == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 1, 9)]
    assert len(set(sets)) == 10
    assert set(Counter(label for held in sets for label in held).values()) == {30}
    assert {len(part) for part in parts} == {600}  # the size that the paper's split has on Fashion-MNIST


def test_cifar_10_and_cifar_100():
    labels = torch.arange(50_000) % 10
    sizes = {len(part) for part in Labels(3).split(labels, 50_000, 100, KEY)}
    assert sizes <= {498, 499, 500, 501}
    labels = torch.arange(50_000) % 100
    parts = Labels(20).split(labels, 50_000, 100, KEY)
    groups = set(label_sets(parts, labels))
    assert len(groups) == 5
    assert sorted(label for group in groups for label in group) == list(range(100))
    assert {len(part) for part in parts} == {500}


def test_a_class_is_shuffled_and_cut_evenly():
    labels = torch.tensor([0] * 7 + [1] * 4)
    parts = Labels(1).split(labels, 11, 4, KEY)
    assert label_sets(parts, labels) == [(0,), (1,), (0,), (1,)]
    assert [len(part) for part in parts] == [4, 2, 3, 2]
    assert any(parts[0].tolist() != Labels(1).split(labels, 11, 4, Key((seed,)))[0].tolist() for seed in range(5))


def test_random_labels_are_distinct_and_many_sets():
    labels = torch.arange(6000) % 10
    parts = Labels(3, "random").split(labels, 6000, 100, KEY)
    counts = label_counts(parts, labels, 10)
    assert (counts > 0).sum(1).tolist() == [3] * 100
    assert len(set(label_sets(parts, labels))) > 30  # of 120
    holders = (counts > 0).sum(0).double()
    assert (holders - 30).abs().max() < 4.5 * (100 * 0.3 * 0.7) ** 0.5
    assert holders.std() > 0


def test_random_leaves_no_class_without_a_holder():
    """5 clients with 2 of 10 labels: only a perfect deal covers all, which a plain draw almost never is."""
    labels = torch.arange(100) % 10
    for seed in range(20):
        parts = Labels(2, "random").split(labels, 100, 5, Key((seed,)))
        assert sum(len(part) for part in parts) == 100
        assert [len(held) for held in label_sets(parts, labels)] == [2] * 5


@pytest.mark.parametrize("variant", ["balanced", "random"])
def test_errors(variant):
    labels = torch.arange(100) % 10
    with pytest.raises(ValueError, match=r"labels_per_client is 11, but the training samples have 10 classes"):
        Labels(11, variant).split(labels, 100, 5, KEY)
    with pytest.raises(ValueError, match=r"is 2: 3 clients hold at most 6 of 10 classes; raise it to 4 or more"):
        Labels(2, variant).split(labels, 100, 3, KEY)


def test_a_client_left_empty_is_named():
    labels = torch.tensor([0] * 20 + [1])
    with pytest.raises(ValueError, match=r"client 3 would hold no data: 21 samples were dealt to 4 clients"):
        Labels(1).split(labels, 21, 4, KEY)


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
