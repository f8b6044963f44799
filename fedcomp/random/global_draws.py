"""Finds draws from the global generators of torch and NumPy, which no key names: they make a run unrepeatable."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def no_global_draws(what: str) -> Iterator[None]:
    """Raise ValueError, which begins with `what`, if something within the block draws from a global generator."""
    torchs, numpys = torch.get_rng_state(), _numpy_state()
    yield
    moved = "torch's" if not torch.equal(torch.get_rng_state(), torchs) else "NumPy's"
    if moved == "torch's" or _numpy_state() != numpys:
        raise ValueError(
            f"{what} draws from {moved} global generator, which neither the run's seed nor a checkpoint determines: "
            "draw by a key that it is given, as in torch.rand(3, generator=key.generator())"
        )


def _numpy_state() -> tuple[bytes, int]:
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - what draws from it is what is looked for
    return state["key"].tobytes(), state["pos"]
