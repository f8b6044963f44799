"""The default dataset: what scikit-learn's own reader gives, split as the FedScalar paper does."""

import pytest
import torch

from fedcomp.dataset.check import check
from fedcomp.dataset.images import digits
from tests.refused import refused


def rows(dataset):
    """All samples with their labels, in an order of their own."""
    x = torch.cat([dataset.train.x, dataset.test.x]).long()
    y = torch.cat([dataset.train.y, dataset.test.y])
    return sorted(map(tuple, torch.cat([x, y[:, None]], dim=1).tolist()))


@pytest.mark.thorough
def test_the_samples_are_scikit_learns_each_once():
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    expected = torch.cat([torch.from_numpy(pixels), torch.from_numpy(labels)[:, None]], dim=1).long()
    assert rows(digits.load()) == sorted(map(tuple, expected.tolist()))


def test_split_and_normalisation():
    dataset = digits.load()
    check(dataset)
    assert (len(dataset.train), len(dataset.test)) == (1600, 197)
    assert dataset.input_shape == (64,)
    assert dataset.train.x.dtype == torch.uint8
    inputs = dataset.normalise(dataset.train.x)
    assert (float(inputs.min()), float(inputs.max())) == (0.0, 1.0)
    raw = digits.load(pixels="raw")
    assert torch.equal(raw.normalise(raw.train.x), raw.train.x.float())
    assert len(dataset.test.y.unique()) == 10


def test_the_split_follows_its_seed():
    assert torch.equal(digits.load().train.x, digits.load().train.x)
    assert not torch.equal(digits.load().train.x, digits.load(split_seed=1).train.x)
    assert rows(digits.load(num_train=1)) == rows(digits.load(split_seed=1))


test_what_it_refuses = refused(
    [
        *(
            ({"num_train": num}, r"dataset.num_train=.* must be a whole number from 1 to 1796")
            for num in (0, 1797, 1600.5, "all")
        ),
        ({"pixels": "grey"}, r"dataset.pixels=grey must be one of unit, raw: inputs in"),
    ],
    digits.load,
)
