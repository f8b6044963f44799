"""Finds draws from the global generators of torch, NumPy and Python, which no key names: no run could be repeated."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import rich.style  # noqa: F401 - draws from Python's as it is imported, such as by scikit-learn: here, before all else
import torch

TORCHS, NUMPYS, PYTHONS = "torch's", "NumPy's", "Python's"
ALL = TORCHS, NUMPYS, PYTHONS
KEYED = "draw by a key that it is given, as in torch.rand(3, generator=key.generator())"


@contextlib.contextmanager
def no_global_draws(what: str, remedy: str = KEYED, of: tuple[str, ...] = ALL) -> Iterator[None]:
    """Raise ValueError, from `what` to `remedy`, if something within the block draws from a global generator.

    Args:
        of: whose generators count.
    """
    with noted_draws(of) as drawn:
        yield
    if drawn:
        raise ValueError(
            f"{what} draws from {drawn[0]} global generator, which neither the run's seed nor a checkpoint "
            f"determines: {remedy}"
        )


@contextlib.contextmanager
def noted_draws(of: tuple[str, ...] = ALL) -> Iterator[list[str]]:
    """A list that has, after the block, whose global generators something within it has drawn from, or given a seed.

    Args:
        of: whose count.
    """
    before, drawn = _states(of), list[str]()
    yield drawn
    drawn += [whose for whose, state in _states(of).items() if state != before[whose]]


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


def _states(of: tuple[str, ...]) -> dict[str, Any]:
    """The states of these global generators, by whose they are."""
    read = {TORCHS: lambda: torch.get_rng_state().numpy().tobytes(), NUMPYS: _numpys, PYTHONS: random.getstate}
    return {whose: read[whose]() for whose in of}


def _numpys() -> tuple[bytes, int]:
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - what draws from it is what is looked for
    return state["key"].tobytes(), state["pos"]
