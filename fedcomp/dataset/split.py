"""Samples that are held out for the test set, by a seed of their own that is not the run's."""

from dataclasses import replace

import numpy as np
import torch

from fedcomp.core.validate import check_interval, check_seed
from fedcomp.dataset.contract import Samples
from fedcomp.random.keys import Key


def split_rows(num_rows: int, test_fraction: float, split_seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to train and to test with; no test rows for a fraction of 0, else at least one of each."""
    check_seed("dataset.split_seed", split_seed)
    check_interval("dataset.test_fraction", test_fraction, "[0, 1)", "0 tests on the training rows")
    if test_fraction == 0:
        return np.arange(num_rows), np.arange(0)
    if num_rows < 2:
        raise ValueError(f"dataset.test_fraction is {test_fraction}, but {num_rows} row cannot be split; set it to 0")
    order = _order(num_rows, split_seed)
    num_test = min(max(round(test_fraction * num_rows), 1), num_rows - 1)
    return order[num_test:], order[:num_test]


def split_classes(samples: Samples, test_fraction: float, split_seed: int) -> tuple[Samples, Samples]:
    """Samples to train and to test with, `test_fraction` of each class and at least one of each, in their order.

    Raises ValueError: a fraction outside (0, 1), or a class of a single sample.
    """
    check_seed("dataset.split_seed", split_seed)
    check_interval("dataset.test_fraction", test_fraction, "(0, 1)", "the share of each class that is held out")
    order, labels = _order(len(samples), split_seed), samples.y.numpy()
    test = np.zeros(len(samples), bool)
    for label in np.unique(labels):
        own = order[labels[order] == label]
        if len(own) < 2:
            raise ValueError(
                f"dataset.test_fraction={test_fraction} needs two samples or more of each class, but class number "
                f"{label} has one: add a sample, or remove the class"
            )
        test[own[: min(max(round(test_fraction * len(own)), 1), len(own) - 1)]] = True
    return _rows(samples, ~test), _rows(samples, test)


def _order(num_rows: int, split_seed: int) -> np.ndarray:
    """[n] row numbers in random order."""
    return torch.randperm(num_rows, generator=Key(("dataset", "split", split_seed)).generator()).numpy()


def _rows(samples: Samples, chosen: np.ndarray) -> Samples:
    rows = torch.from_numpy(np.flatnonzero(chosen))
    owner = None if samples.owner is None else samples.owner[rows]
    return replace(samples, x=samples.x[rows], y=samples.y[rows], owner=owner)
