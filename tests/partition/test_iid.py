"""Equal parts of a shuffle."""

import torch

from fedcomp.partition.iid import IID
from fedcomp.random.keys import Key

KEY = Key(("partition", 0))


def test_sizes_differ_by_one_at_most():
    assert [len(part) for part in IID().split(None, 11, 4, KEY)] == [3, 3, 3, 2]


def test_parts_are_no_runs_of_the_dataset():
    """The mean sample number of each of 10 parts of 1000 is uniform's mean within 4.5 standard errors."""
    parts = IID().split(None, 10_000, 10, KEY)
    standard_error = 10_000 / 12**0.5 / 1000**0.5
    assert all(abs(part.double().mean() - 4999.5) < 4.5 * standard_error for part in parts)
    assert all(len(torch.unique(part)) == 1000 for part in parts)
