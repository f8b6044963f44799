"""Loads the data set of a config, and says what is odd in one of the user's own."""

import logging
from collections.abc import Iterator

import torch
from omegaconf import DictConfig
from torch import Tensor

from fedcomp.config.instantiate import build
from fedcomp.dataset.check import check
from fedcomp.dataset.contract import Dataset
from fedcomp.dataset.notes import notes
from fedcomp.random.global_draws import TORCHS, noted_draws, states_kept

log = logging.getLogger("fedcomp")


def load_dataset(node: DictConfig) -> Dataset:
    """The data set of this node, checked; of one of the user's own it says what is odd in it.

    Raises ValueError: it cannot be loaded, breaks the contract, or is the user's own and has other data each time.
    """
    seed = torch.initial_seed()
    with noted_draws() as drawn:
        dataset: Dataset = build(node)
    check(dataset)
    if str(node.get("_target_", "")).startswith("fedcomp."):
        return dataset
    for note in notes(dataset):
        log.warning("warning: dataset=%s: %s", dataset.name, note, extra={"note": True})
    if torch.initial_seed() != seed:  # it gave torch a seed, so that it draws the same each time
        drawn = [whose for whose in drawn if whose != TORCHS]
    if drawn:
        _check_again(node, dataset, drawn[0])
    return dataset


def _check_again(node: DictConfig, dataset: Dataset, whose: str) -> None:
    """Raise ValueError if a data set that has drawn from a global generator has other data when it is loaded again.

    It may have given a seed before, or have drawn something else.
    """
    with states_kept():
        again: Dataset = build(node)
    for (name, one), (_, other) in zip(_tensors(dataset), _tensors(again)):
        if one.dtype != other.dtype or not torch.equal(one, other):
            raise ValueError(
                f"dataset={dataset.name} draws from {whose} global generator, which no seed determines: loaded again, "
                f"{name} is another, so every run would have other data. Draw by a key, as in torch.rand(3, "
                'generator=Key(("mine", split_seed)).generator()) with an option split_seed'
            )


def _tensors(dataset: Dataset) -> Iterator[tuple[str, Tensor]]:
    for where, samples in (("train", dataset.train), ("test", dataset.test)):
        yield f"{where}.x", samples.x
        yield f"{where}.y", samples.y
        yield f"{where}.owner", torch.zeros(0) if samples.owner is None else samples.owner
    yield from (("mean", dataset.mean), ("std", dataset.std))
