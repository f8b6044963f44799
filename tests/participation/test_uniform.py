"""M of N."""

from collections import Counter

import pytest
import torch

from fedcomp.participation.uniform import Uniform
from fedcomp.random.keys import Key
from tests.looped import looped

ONES = torch.ones(4, dtype=torch.float64)


def test_weights_average_those_present():
    importance = torch.tensor([1.0, 3.0, 4.0, 12.0], dtype=torch.float64)
    cohort = Uniform(2).sample(Key(("round", 1)), importance)
    assert cohort.size == 2
    present = importance[cohort.ids]
    torch.testing.assert_close(cohort.weight, (present / present.sum()).float())


def test_every_cohort_is_equally_likely():
    """6 pairs of 4 clients over 6000 rounds, 4.5 standard deviations."""
    times = Counter(Uniform(2).sample(Key(("round", number)), ONES).clients for number in range(6000))
    assert len(times) == 6
    assert max(abs(count - 1000) for count in times.values()) < 4.5 * (6000 / 6 * 5 / 6) ** 0.5


@looped("num_participants", [0, 5, -1, 0.5, "ten", True, None])
def test_num_participants_out_of_range(num_participants):
    line = r"participation.num_participants=.* must be a whole number from 1 to num_clients=4"
    with pytest.raises(ValueError, match=line):
        Uniform(num_participants).check(4)


def test_the_whole_range_is_allowed():
    Uniform(1).check(4)
    Uniform(4).check(4)
