"""Finds draws from the global generators of torch, NumPy and Python, which no key names: no run could be repeated."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

TORCHS, PYTHONS = "torch's", "Python's"
KEYED = "draw by a key that it is given, as in torch.rand(3, generator=key.generator())"


@contextlib.contextmanager
def no_global_draws(what: str, remedy: str = KEYED, torchs: bool = True) -> Iterator[None]:
    """Raise ValueError, from `what` to `remedy`, if something within the block draws from a global generator.

    Args:
        torchs: whether torch's counts; NumPy's and Python's do.
    """
    with noted_draws() as drawn:
        yield
    found = [whose for whose in drawn if torchs or whose != TORCHS]
    if found:
        raise ValueError(
            f"{what} draws from {found[0]} global generator, which neither the run's seed nor a checkpoint "
            f"determines: {remedy}"
        )


@contextlib.contextmanager
def noted_draws() -> Iterator[list[str]]:
    """A list that has, after the block, whose global generators something within it has drawn from, or given a seed."""
    before, drawn = _states(), list[str]()
    yield drawn
    drawn += [whose for whose, state in _states().items() if state != before[whose]]


def _states() -> dict[str, Any]:
    """The state of each global generator, by whose it is."""
    numpys = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - what draws from it is what is looked for
    return {
        TORCHS: torch.get_rng_state().numpy().tobytes(),
        "NumPy's": (numpys["key"].tobytes(), numpys["pos"]),
        PYTHONS: random.getstate(),
    }
