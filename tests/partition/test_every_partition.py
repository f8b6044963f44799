"""What each partition promises: every sample to one client, from the key alone; owners as clients; summaries."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.partition.contract import Partition, check_parts
from fedcomp.partition.dirichlet import Dirichlet
from fedcomp.partition.iid import IID
from fedcomp.partition.labels import Labels
from fedcomp.partition.natural import Natural
from fedcomp.partition.one_each import OneEach
from fedcomp.partition.shards import Shards
from fedcomp.partition.summary import entropy_in_words, label_counts, label_entropy, sizes
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.refused import one_line_error, refused

PARTITIONS = [
    *(IID(), Shards(2), Shards(1), Labels(3), Labels(3, "random"), Labels(1, "random")),
    *(Dirichlet(0.3), Dirichlet(0.3, balance=False, min_size=1), Dirichlet(1.0, "hsu"), Dirichlet(100.0)),
    *(Dirichlet(0.3, "per_client"), Dirichlet(0.001, "per_client")),
]
OWNERS = torch.randint(25, (1603,), generator=Key(("owners",)).generator())
LABELS = torch.randint(10, (1603,), generator=Key(("labels",)).generator())  # unsorted, unequal classes, odd size
KEY = Key(("partition", 7))


@looped("num_clients", [20, 13])
@looped("partition", PARTITIONS)
def test_every_sample_goes_to_exactly_one_client(partition, num_clients):
    parts = partition.split(LABELS, len(LABELS), num_clients, KEY)
    check_parts(parts, len(LABELS))
    assert len(parts) == num_clients
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(LABELS)))


@looped("partition", [*PARTITIONS, Natural()])
def test_the_key_decides(partition):
    def split(key):
        return partition.split(LABELS, len(LABELS), 20, key, OWNERS)

    torch.manual_seed(1)
    first = split(KEY)
    torch.manual_seed(2)
    assert all(torch.equal(*pair) for pair in zip(first, split(KEY)))
    assert not all(torch.equal(*pair) for pair in zip(first, split(Key(("partition", 8)))))


@looped("partition", [IID(), Shards(10), Labels(10), Dirichlet(), Dirichlet(variant="per_client")])
def test_one_client_holds_everything(partition):
    (part,) = partition.split(LABELS, len(LABELS), 1, KEY)
    assert len(part) == len(LABELS)


BY_CLASS = r"partition=\w+ deals samples by class, .* \(regression, text\): take partition=iid"
FEW = r"client 5 would hold no data: 6 clients, but only 5 training samples; lower num_clients to 5"

test_what_they_refuse = refused(
    [
        (partial(partition.split, *given), line)
        for partition in PARTITIONS
        for given, line in [
            ((torch.arange(5), 5, 6, KEY), FEW),
            ((LABELS, len(LABELS), 0, KEY), r"num_clients=0 must be a whole number, 1 or more"),
            ((LABELS, len(LABELS), None, KEY, OWNERS), r"num_clients=null is for partition=natural and partition=one_"),
            *([((None, 100, 10, KEY), BY_CLASS)] if not isinstance(partition, IID) else []),
        ]
    ]
)


test_check_parts_refuses = refused(
    [
        ({"second": torch.arange(0)}, r"client 1 would hold no data: 5 samples were dealt to 2 clients; lower"),
        ({"second": torch.arange(2, 5)}, r"sample 2 is held 2 times, but may be held once"),
        ({"second": torch.arange(3, 6)}, r"a client holds sample 5, but samples are 0 to 4"),
        ({"second": torch.arange(-1, 0)}, r"a client holds sample -1"),
        ({"second": torch.arange(3, 5).float()}, r"client 1's samples are torch.float32"),
    ],
    lambda second: check_parts([torch.arange(3), second], 5),
)


test_what_is_no_list_of_numbers = refused(
    [
        ({"parts": None}, r"the partition returned a NoneType, but must return a list"),
        ({"parts": []}, r"the partition returned nothing, but must return a list"),
        ({"parts": {0: torch.arange(5)}}, r"the partition returned a dict"),
        ({"parts": torch.arange(4).view(2, 2)}, r"the partition returned a Tensor, but must return a list"),
        ({"parts": [[0, 1], [2, 3]]}, r"client 0's samples are a list, but must be their numbers, a tensor int64"),
        ({"parts": [torch.ones(5) > 0] * 2}, r"client 0's samples are torch.bool \(5,\).*of a mask, torch.nonzero"),
        ({"parts": [torch.arange(5)]}, r"the partition deals samples to 1 clients, but num_clients is 2"),
    ],
    lambda parts: check_parts(parts, 5, 2),
)


@dataclass(frozen=True)
class DealtAnew(Partition):
    """Deals by a generator that no key begins."""

    def split(self, labels, num_samples, num_clients, key, owners=None):
        numbers = np.random.default_rng().permutation(num_samples)
        return [torch.as_tensor(part) for part in np.array_split(numbers, num_clients)]


def test_a_rule_of_ones_own_that_deals_otherwise_by_the_same_key_is_refused():
    config = compose(["num_clients=2", "rounds=1"])
    config.partition = OmegaConf.create({"_target_": f"{__name__}.DealtAnew", "seed": None})
    with one_line_error(
        "^partition=test_every_partition deals other samples by the same key, also to a resumed run: draw by a key"
    ):
        build_simulation(config, torch.device("cpu"))


@dataclass(frozen=True)
class Marks(Partition):
    """Marks in the labels whom it has dealt."""

    def split(self, labels, num_samples, num_clients, key, owners=None):
        parts = IID().split(labels, num_samples, num_clients, key)
        labels.fill_(0)
        return parts


def test_a_rule_of_ones_own_may_write_into_labels_from_which_nobody_learns():
    config = compose(["num_clients=2", "rounds=1"])
    config.partition = OmegaConf.create({"_target_": f"{__name__}.Marks", "seed": None})
    assert build_simulation(config, torch.device("cpu"))[0].dataset.train.y.any()


def test_check_parts_allows_samples_that_nobody_holds():
    check_parts([torch.tensor([4]), torch.tensor([0, 2])], 5)


def test_sizes_of_iid_differ_by_one_at_most():
    assert [len(part) for part in IID().split(None, 11, 4, KEY)] == [3, 3, 3, 2]


def test_parts_of_iid_are_no_runs_of_the_dataset():
    """The mean sample number of each of 10 parts of 1000 is uniform's mean within 4.5 standard errors."""
    parts = IID().split(None, 10_000, 10, KEY)
    standard_error = 10_000 / 12**0.5 / 1000**0.5
    assert all(abs(part.double().mean() - 4999.5) < 4.5 * standard_error for part in parts)
    assert all(len(torch.unique(part)) == 1000 for part in parts)


def test_one_each_is_in_order():
    parts = OneEach().split(None, 4, 4, KEY)
    assert [part.tolist() for part in parts] == [[0], [1], [2], [3]]


FIRST = Key(("partition", 0))
FEW_OWNERS = torch.tensor([7, 2, 7, 2, 2, 5, 9, 9])


def lists(parts):
    return [part.tolist() for part in parts]


def test_each_owner_is_a_client():
    parts = Natural().split(None, 8, None, FIRST, FEW_OWNERS)
    check_parts(parts, 8)
    assert lists(parts) == [[1, 3, 4], [5], [0, 2], [6, 7]]
    assert lists(Natural().split(None, 8, 4, FIRST, FEW_OWNERS)) == lists(parts)


def test_small_owners_are_left_out():
    assert lists(Natural(min_size=2).split(None, 8, None, FIRST, FEW_OWNERS)) == [[1, 3, 4], [0, 2], [6, 7]]
    assert lists(Natural(min_size=3).split(None, 8, 1, FIRST, FEW_OWNERS)) == [[1, 3, 4]]


def test_fewer_clients_than_owners_are_drawn_evenly():
    owners, times = torch.arange(10).repeat(3), torch.zeros(10)
    for seed in range(1000):
        parts = Natural().split(None, 30, 3, Key((seed,)), owners)
        drawn = [int(owners[part[0]]) for part in parts]
        assert drawn == sorted(set(drawn))
        assert all(set(owners[part].tolist()) == {owner} for part, owner in zip(parts, drawn))
        times[drawn] += 1
    assert float((times - 300).abs().max()) < 5 * (1000 * 0.3 * 0.7) ** 0.5


test_what_owners_and_one_each_refuse = refused(
    [
        ({"num": 2, "owners": None}, r"this dataset does not say who owns them: take a dataset that does"),
        ({"num": 5}, r"num_clients is 5, but 4 of 4 owners .*: take 1 to 4, or null for all"),
        ({"num": 0}, r"num_clients is 0, but 4 of 4 owners"),
        ({"num": 4, "min_size": 2}, r"num_clients is 4, but 3 of 4 owners have partition.min_size=2"),
        ({"num": None, "min_size": 4}, r"min_size is 4, but the largest of 4 owners has 3 training samples"),
        (lambda: OneEach().split(None, 5, 4, KEY), "set num_clients=5, or take partition=iid"),
    ],
    lambda num, owners=FEW_OWNERS, **options: Natural(**options).split(None, 8, num, FIRST, owners),
)


def test_counts_of_a_small_partition():
    parts, labels = [torch.tensor([0, 3, 4]), torch.tensor([1])], torch.tensor([2, 0, 1, 2, 0])
    counts = label_counts(parts, labels, 4)
    assert counts.tolist() == [[1, 0, 2, 0], [1, 0, 0, 0]]
    assert sizes(parts).tolist() == [3, 1]
    assert (counts > 0).sum(1).tolist() == [2, 1]


def test_label_entropy_by_hand():
    counts = torch.tensor([[5, 0], [2, 2], [1, 3]])
    uneven = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert label_entropy(counts).tolist() == pytest.approx([0, math.log(2), uneven])
    said = entropy_in_words(counts)
    assert said == "mean label entropy of a client 0.418 nats (0.000 to 0.693); pooled 0.666"
