"""A dataset from a table: the split into training and test rows, the scaling, and the classes of a target column.

Shape legend: n rows, F features.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch

from fedcomp.core.validate import check_choice, reads_as_number
from fedcomp.dataset.contract import Dataset, Samples, Task
from fedcomp.dataset.split import split_rows
from fedcomp.dataset.tables.cells import is_missing

Scaling = Literal["min_max", "z_score", "none"]
Constant = Literal["refused", "zero"]

FEWEST_EACH = 5
"""Rows a class on average; a column with fewer is taken for a quantity or a name."""


def tabular_dataset(
    name: str,
    features: np.ndarray,
    target: np.ndarray,
    feature_names: Sequence[str],
    task: Task,
    class_names: Sequence[str],
    test_fraction: float,
    split_seed: int,
    scaling: Scaling,
    target_scaling: Scaling,
    owners: np.ndarray | None = None,
    constant: Constant = "refused",
    is_test: Sequence[bool] | None = None,
) -> Dataset:
    """Split and scale a table; all statistics are those of the training rows.

    Scaled here, in float64, and not by `Dataset.normalise`: a column such as a year keeps its last digits.

    Args:
        features: [n, F] float64; nan where a value is missing, which the mean of the training rows replaces.
        target: [n] float64 values or, to classify, class numbers.
        feature_names: one a feature, for errors. class_names: one a class; empty for regression.
        test_fraction: of the rows, in [0, 1), drawn by a seeded shuffle. At 0 nothing is held out, the rows keep their
            order, and **the test set is the training set**: test figures are then training figures.
        scaling: of a model's inputs. min_max to [0, 1]: (x - min) / (max - min); z_score: (x - mean) / deviation.
        target_scaling: likewise of a regression's target; squared errors are then in scaled units.
        owners: [n] number of each row's owner; None: not known.
        is_test: [n] the rows to test with, instead of `test_fraction`; None: those are drawn.
        constant: what becomes of a feature that is the same in all training rows: refused, or 0 there when scaled.
    Raises:
        ValueError: an argument outside its range, a constant column that is to be scaled, or one without any value.
    """
    for argument, value in (("scaling", scaling), ("target_scaling", target_scaling)):
        check_choice(f"dataset.{argument}", value, get_args(Scaling))
    if is_test is None:
        train, test = split_rows(len(features), test_fraction, split_seed)
    else:
        train, test = np.flatnonzero(~np.array(is_test)), np.flatnonzero(is_test)
    features = _imputed(features, train, feature_names)
    instead = "leave it out of features"
    offset, scale = _statistics(features[train], scaling, feature_names, instead, constant)
    if task == "regression":
        instead = "take another one, or dataset.target_scaling=none"
        target_offset, target_scale = _statistics(target[train, None], target_scaling, ["the target"], instead)
        labels = torch.from_numpy((target[:, None] - target_offset) / target_scale).to(torch.float32)
    else:
        labels = torch.from_numpy(target.astype(np.int64))
    inputs = torch.from_numpy((features - offset) / scale).to(torch.float32)
    held_in, held_out = (
        Samples(inputs[rows], labels[rows], None if owners is None else torch.from_numpy(owners[rows]))
        for rows in (train, test)
    )
    return Dataset(
        name=name,
        train=held_in,
        test=held_out if len(test) else held_in,
        task=task,
        num_outputs=len(class_names) if task == "classification" else 1,
        class_names=tuple(class_names),
    )


def _imputed(columns: np.ndarray, train: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """[n, F] with the mean of the training rows where a number is missing (nan)."""
    if not np.isnan(columns).any():
        return columns
    filled = columns.copy()
    for place, name in enumerate(names):
        absent = np.isnan(columns[:, place])
        present = columns[train, place][~absent[train]]
        if not len(present):
            raise ValueError(f"{name} has no value in any training row: leave it out of features")
        filled[absent, place] = present.mean()
    return filled


def _statistics(
    columns: np.ndarray, scaling: Scaling, names: Sequence[str], instead: str, constant: Constant = "refused"
) -> tuple[np.ndarray, np.ndarray]:
    """What to subtract from each column, and what to divide it by. `instead`: what to do where it is refused."""
    if scaling == "none":
        return np.zeros(columns.shape[1]), np.ones(columns.shape[1])
    if scaling == "min_max":
        offset, scale = columns.min(0), columns.max(0) - columns.min(0)
    else:
        offset, scale = columns.mean(0), columns.std(0)
    same = columns.max(0) == columns.min(0)
    if constant == "zero":
        return np.where(same, columns[0], offset), np.where(same, 1.0, scale)
    for name, first, refused in zip(names, columns[0], same):
        if refused:
            raise ValueError(f"{name} is {first:g} in every training row and cannot be scaled: {instead}")
    return offset, scale


def classes_of(target: str, cells: Sequence[str], places: Sequence[str], many: bool) -> list[str]:
    """The distinct values of the target column in order; ValueError unless they can be classes.

    Args:
        target: the column. cells: [n] its values. places: [n] where each stands, to open an error.
        many: whether to allow more classes than a fifth of the rows.
    Raises:
        ValueError: a cell without a value, or more distinct values than a fifth of the rows.
    """
    for place, cell in zip(places, cells):
        if is_missing(cell):
            said = f"'{cell}', which stands for no value" if cell else "empty"
            raise ValueError(
                f"{place}: the label is {said}; repair or drop that row (dataset.missing=drop), or rename the class"
            )
    found = distinct(cells)
    if len(found) * FEWEST_EACH > len(cells) and not many:
        raise ValueError(
            f"dataset.target={target} has {len(found)} different values in {len(cells)} rows, too many for classes (at "
            "most a fifth): take dataset.task=regression or another column, or dataset.many_classes=true if each is "
            "a class"
        )
    return found


def distinct(cells: Sequence[str]) -> list[str]:
    """The distinct values in order: as numbers where all are, else as text."""
    found = sorted(set(cells))
    return sorted(found, key=float) if all(map(reads_as_number, found)) else found
