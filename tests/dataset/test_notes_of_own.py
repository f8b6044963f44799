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


def load(draws: str = "key", scale: float = 1.0) -> Dataset:
    """Two classes around different means."""
    y = torch.arange(80) % 2
    if draws == "numpy":
        noise = torch.as_tensor(np.random.randn(80, 3), dtype=torch.float32)  # noqa: NPY002
    else:
        if draws == "seeded":
            torch.manual_seed(3)
        noise = torch.randn(80, 3, generator=Key(("own",)).generator() if draws == "key" else None)
    x = (noise + y[:, None]) * scale
    return Dataset("own", Samples(x[:60], y[:60]), Samples(x[60:], y[60:]), "classification", 2)


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
