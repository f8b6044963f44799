"""What a run says of a data set of the user's own that loads, and with which results are not what they seem."""

import logging
import random
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.config.loaded_data import load_dataset
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.random.global_draws import states_kept
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.refused import one_line_error

LOADED = []
"""What was drawn by each load so far."""


def load(draws: str = "key", scale: float = 1.0, test_scale: float = 1.0, split: str = "last") -> Dataset:
    """Two classes around different means; a third comes last if they are sorted."""
    LOADED.append(draws)
    y = torch.arange(80) % 2
    if draws.startswith("numpy"):
        if draws == "numpy seeded":
            np.random.seed(3)  # noqa: NPY002
        noise = torch.as_tensor(np.random.randn(80, 3), dtype=torch.float32)  # noqa: NPY002
    else:
        if draws == "seeded":
            torch.manual_seed(3)
        noise = torch.randn(80, 3, generator=None if draws in ("torch", "seeded") else Key(("own",)).generator())
    if draws == "python":
        noise += random.random()
    if draws == "owners":
        owner = torch.randint(2, (60,))
    elif draws == "in vain":
        torch.randn(3)
    x = (noise + y[:, None]) * scale
    if split == "sorted":
        y[-20:] = 2
    train = Samples(x[:-20], y[:-20], owner if draws == "owners" else None)
    test = Samples(x[-20:] * test_scale, y[-20:])
    return Dataset("own", train, train if split == "none" else test, "classification", 2 + (split == "sorted"))


def _config(**options: Any) -> DictConfig:
    config = compose(["num_clients=2", "rounds=1"])
    config.dataset = OmegaConf.create({"_target_": "tests.dataset.test_notes_of_own.load", **options})
    return config


@looped(
    "options, words",
    [
        ({}, ""),
        ({"draws": "seeded"}, ""),
        ({"draws": "numpy seeded"}, ""),
        ({"draws": "in vain"}, ""),
        ({"scale": 255.0}, "dataset=own: inputs have mean 1"),
        ({"test_scale": 255.0}, "dataset=own: inputs of the test have mean"),
        ({"split": "sorted"}, "dataset=own: no training sample is of class 2, of which test samples are"),
        ({"split": "none"}, "dataset=own: 100% of the test samples are training samples too"),
    ],
)
def test_what_is_odd_of_ones_own_data_is_said(options, words: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fedcomp"), torch.random.fork_rng(devices=[]):
        load_dataset(_config(**options).dataset)
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == bool(words)
    assert all(words in one for one in said)


@looped(
    "draws, whose, what",
    [
        ("torch", "torch", "train.x"),
        ("numpy", "NumPy", "train.x"),
        ("python", "Python", "train.x"),
        ("owners", "torch", "train.owner"),
    ],
)
def test_data_that_are_others_in_every_process_are_refused(draws: str, whose: str, what: str) -> None:
    refusal = f"^dataset=own draws from {whose}'s global generator, .* again, {what} is another.*Key.*split_seed"
    with torch.random.fork_rng(devices=[]), one_line_error(refusal):
        build_simulation(_config(draws=draws), torch.device("cpu"))


@looped("draws, loads", [("key", 1), ("seeded", 1), ("numpy seeded", 2), ("in vain", 2)])
def test_global_generators_are_as_one_load_leaves_them(draws: str, loads: int) -> None:
    with states_kept():
        torch.manual_seed(0)
        load(draws)
        wanted = torch.rand(3), np.random.rand(3)  # noqa: NPY002
        torch.manual_seed(0)
        LOADED.clear()
        load_dataset(_config(draws=draws).dataset)
        assert len(LOADED) == loads
        if draws == "numpy seeded":
            assert np.array_equal(np.random.rand(3), wanted[1])  # noqa: NPY002
        assert torch.equal(torch.rand(3), wanted[0])
