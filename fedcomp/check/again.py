"""What must not matter when something is drawn again by the same key: another process, and who else has drawn."""

import random

import numpy as np
import torch

from fedcomp.random.keys import Key


class _Word(str):
    """A word that hashes as in another process, which hashes every word anew."""

    def __hash__(self) -> int:
        return hash(f"another process: {self}")


def key(*path: int | str) -> Key:
    """Names the draws of a check."""
    return Key(("check", *path))


def same_key(*path: int | str) -> Key:
    """The same key, as it is in another process."""
    return Key((_Word("check"), *path))


def move_global_generators() -> None:
    """Draw from torch's, NumPy's and Python's global generators."""
    torch.rand(3)
    np.random.random(3)  # noqa: NPY002 - nothing may depend on it
    random.random()
