"""Finds draws from the global generators of torch and NumPy, which no key names: they make a run unrepeatable."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


@contextlib.contextmanager
def no_global_draws(what: str) -> Iterator[None]:
    """Raise ValueError, which begins with `what`, if something within the block draws from a global generator."""
    before = _states()
    yield
    for whose, state in _states().items():
        if state != before[whose]:
            raise ValueError(
                f"{what} draws from {whose} global generator, which neither the run's seed nor a checkpoint "
                "determines: draw by a key that it is given, as in torch.rand(3, generator=key.generator())"
            )


def _states() -> dict[str, Any]:
    """The state of each global generator, by whose it is."""
    numpys = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - what draws from it is what is looked for
    return {"torch's": torch.get_rng_state().numpy().tobytes(), "NumPy's": (numpys["key"].tobytes(), numpys["pos"])}
