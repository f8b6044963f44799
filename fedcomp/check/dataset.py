"""What every data set must pass."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedcomp.check.again import move_global_generators
from fedcomp.check.failed import described, require
from fedcomp.dataset.check import check
from fedcomp.dataset.contract import IGNORED, Dataset
from fedcomp.dataset.notes import off_scale, shared

MOST_SHARED = 0.01
"""Largest share of the test samples that may be training samples too."""
SEEN = 20_000
"""Samples whose scale is looked at."""


@dataclass(frozen=True)
class DatasetCase:
    """A data set. name: shown with the results. load: makes it."""

    name: str
    load: Callable[[], Dataset]


def check_samples(case: DatasetCase) -> None:
    """Samples and targets have shapes, types and ranges that fit the task; every value is finite."""
    try:
        check(case.load())
    except ValueError as error:
        require(False, str(error))


def check_again(case: DatasetCase) -> None:
    """Loading twice gives the same bits, whatever the state of global generators."""
    one = case.load()
    move_global_generators()
    other = case.load()
    for name in ("train", "test"):
        for part in ("x", "y"):
            both = getattr(getattr(other, name), part), getattr(getattr(one, name), part)
            require(torch.equal(*both), f"loaded again, {name}.{part} {described(*both)}")


def check_classes(case: DatasetCase) -> None:
    """Every class has a training sample."""
    data = case.load()
    if data.task == "regression":
        return
    given = set(data.train.y.unique().tolist()) - {IGNORED}
    missing = sorted(set(range(data.num_outputs)) - given)
    if data.task == "classification":
        require(not missing, f"of {data.num_outputs} classes, {missing[:5]} have no training sample")


def check_normalisation(case: DatasetCase) -> None:
    """Normalised inputs are of the order of one (`mean` and `std` of the data set)."""
    wrong = off_scale(case.load(), SEEN)
    require(wrong is None, str(wrong))


def check_held_out(case: DatasetCase) -> None:
    """Test samples are not training samples."""
    share = shared(case.load())
    require(share <= MOST_SHARED, f"{share:.1%} of the test samples are training samples too")


CHECKS = (check_samples, check_again, check_classes, check_normalisation, check_held_out)
