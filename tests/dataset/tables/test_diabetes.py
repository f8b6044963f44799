"""Diabetes: what scikit-learn's own reader gives."""

import torch

from fedcomp.dataset.check import check
from fedcomp.dataset.tables import diabetes


def test_values_are_scikit_learns():
    from sklearn.datasets import load_diabetes

    features, target = load_diabetes(return_X_y=True, scaled=False)
    dataset = diabetes.load(test_fraction=0, scaling="none", target_scaling="none")
    check(dataset)
    assert torch.equal(dataset.train.x, torch.from_numpy(features).float())
    assert torch.equal(dataset.train.y, torch.from_numpy(target).float()[:, None])


def test_z_scores_of_the_training_rows():
    dataset = diabetes.load()
    assert (len(dataset.train), len(dataset.test)) == (354, 88)
    inputs = dataset.normalise(dataset.train.x)
    torch.testing.assert_close(inputs.mean(0), torch.zeros(10), atol=1e-6, rtol=0)
    torch.testing.assert_close(inputs.std(0, correction=0), torch.ones(10), atol=1e-6, rtol=0)
    torch.testing.assert_close((dataset.train.y**2).mean(), torch.tensor(1.0))
