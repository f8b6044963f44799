"""Finds draws from the global generators of torch, NumPy and Python, which no key names: no run could be repeated."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import rich.style  # noqa: F401 - draws from Python's as it is imported, such as by scikit-learn: here, before all else
import torch

TORCHS = "torch's"
KEYED = "draw by a key that it is given, as in torch.rand(3, generator=key.generator())"


@contextlib.contextmanager
def no_global_draws(what: str, remedy: str = KEYED, torchs: bool = True) -> Iterator[None]:
    """Raise ValueError, from `what` to `remedy`, if something within the block draws from a global generator.

    Args:
        torchs: whether torch's counts; NumPy's and Python's do.
    """
    with noted_draws(torchs) as drawn:
        yield
    if drawn:
        raise ValueError(
            f"{what} draws from {drawn[0]} global generator, which neither the run's seed nor a checkpoint "
            f"determines: {remedy}"
        )


@contextlib.contextmanager
def noted_draws(torchs: bool = True) -> Iterator[list[str]]:
    """A list that has, after the block, whose global generators something within it has drawn from, or given a seed.

    Args:
        torchs: whether torch's counts.
    """
    before, drawn = _states(torchs), list[str]()
    yield drawn
    drawn += [whose for whose, state in _states(torchs).items() if state != before[whose]]


@contextlib.contextmanager
def states_kept() -> Iterator[None]:
    """Within the block the global generators may be drawn from; after it they are as before."""
    numpys, pythons = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002 - whoever else draws from it
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            np.random.set_state(numpys)  # noqa: NPY002
            random.setstate(pythons)


def _states(torchs: bool) -> dict[str, Any]:
    """The state of each global generator, by whose it is."""
    numpys = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - what draws from it is what is looked for
    others = {"NumPy's": (numpys["key"].tobytes(), numpys["pos"]), "Python's": random.getstate()}
    return {TORCHS: torch.get_rng_state().numpy().tobytes(), **others} if torchs else others
