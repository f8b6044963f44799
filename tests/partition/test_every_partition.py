"""What each partition promises: every sample to exactly one client, from the key alone."""

from functools import partial

import pytest
import torch

from fedcomp.partition.contract import check_parts
from fedcomp.partition.dirichlet import Dirichlet
from fedcomp.partition.iid import IID
from fedcomp.partition.labels import Labels
from fedcomp.partition.natural import Natural
from fedcomp.partition.one_each import OneEach
from fedcomp.partition.shards import Shards
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.refused import refused

PARTITIONS = [
    IID(),
    Shards(2),
    Shards(1),
    Labels(3),
    Labels(3, "random"),
    Labels(1, "random"),
    Dirichlet(0.3),
    Dirichlet(0.3, balance=False, min_size=1),
    Dirichlet(0.3, "per_client"),
    Dirichlet(0.001, "per_client"),
    Dirichlet(1.0, "hsu"),
    Dirichlet(100.0),
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


@looped(
    "parts, line",
    [
        ([torch.arange(3), torch.arange(0)], r"client 1 would hold no data: 5 samples were dealt to 2 clients; lower"),
        ([torch.arange(3), torch.arange(2, 5)], r"sample 2 is held 2 times, but may be held once"),
        ([torch.arange(3), torch.arange(3, 6)], r"a client holds sample 5, but samples are 0 to 4"),
        ([torch.arange(3), torch.arange(-1, 0)], r"a client holds sample -1"),
        ([torch.arange(3).float()], r"client 0's samples are torch.float32"),
    ],
)
def test_check_parts_refuses(parts, line):
    with pytest.raises(ValueError, match=line):
        check_parts(parts, 5)


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


def test_one_each_refuses_another_number_of_clients():
    with pytest.raises(ValueError, match="set num_clients=5, or take partition=iid"):
        OneEach().split(None, 5, 4, KEY)
