"""Everyone."""

import torch

from fedcomp.participation.full import Full
from fedcomp.random.keys import Key


def test_everyone_with_their_share():
    Full().check(3)
    cohort = Full().sample(Key(("round", 0)), torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    assert cohort.clients == (0, 1, 2)
    assert cohort.weight.tolist() == [0.125, 0.25, 0.625]
