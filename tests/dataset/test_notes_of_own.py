"""What a run says of a data set of the user's own that loads, and with which results are not what they seem."""

import logging

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.random.keys import Key
from tests.looped import looped


def load(draws: str = "key", scale: float = 1.0, test_scale: float = 1.0, split: str = "last") -> Dataset:
    """Two classes around different means; a third comes last if they are sorted."""
    y = torch.arange(80) % 2
    if draws == "numpy":
        noise = torch.as_tensor(np.random.randn(80, 3), dtype=torch.float32)  # noqa: NPY002
    else:
        if draws == "seeded":
            torch.manual_seed(3)
        noise = torch.randn(80, 3, generator=Key(("own",)).generator() if draws == "key" else None)
    x = (noise + y[:, None]) * scale
    if split == "sorted":
        y[-20:] = 2
    train, test = (Samples(x[:-20], y[:-20]), Samples(x[-20:] * test_scale, y[-20:]))
    return Dataset("own", train, train if split == "none" else test, "classification", 2 + (split == "sorted"))


@looped(
    "options, words",
    [
        ({}, ""),
        (
            {"draws": "torch"},
            "dataset=own draws from torch's global generator: unless it gives a seed there, every run",
        ),
        ({"draws": "numpy"}, "dataset=own draws from NumPy's global generator"),
        ({"draws": "seeded"}, ""),
        ({"scale": 255.0}, "dataset=own: inputs have mean 1"),
        ({"test_scale": 255.0}, "dataset=own: inputs of the test have mean"),
        ({"split": "sorted"}, "dataset=own: no training sample is of class 2, of which test samples are"),
        ({"split": "none"}, "dataset=own: 100% of the test samples are training samples too"),
    ],
)
def test_what_is_odd_of_ones_own_data_is_said(options, words: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    config = compose(["num_clients=2", "rounds=1"])
    config.dataset = OmegaConf.create({"_target_": "tests.dataset.test_notes_of_own.load", **options})
    with caplog.at_level(logging.WARNING, "fedcomp"), torch.random.fork_rng(devices=[]):
        build_simulation(config, torch.device("cpu"))
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == bool(words)
    assert all(words in one for one in said)
