"""The one number that goes with a quantised rotated piece: it makes the estimate unbiased, or closest."""

from __future__ import annotations

import torch
from torch import Tensor

SCALES = ("min_mse", "unbiased")


def fit_scale(choice: str, z_MC: Tensor, levels_MC: Tensor) -> Tensor:
    """[M] the a with which a * q stands for z, row by row; 0 for z = 0.

    Args:
        choice: min_mse, a = <q, z> / ||q||^2, minimises ||z - a q||; unbiased, a = ||z||^2 / <q, z>, gives a * q the
            inner product ||z||^2 with z in every draw, and so the mean z over random rotations.
        z_MC: [M, c] a piece of the rotated rows. levels_MC: [M, c] q, what its entries were rounded to.
    """
    inner = (levels_MC * z_MC).sum(1)
    if choice == "min_mse":
        above, below = inner, levels_MC.square().sum(1)
    else:
        above, below = z_MC.square().sum(1), inner
    return torch.where(inner > 0, above / below, 0.0)
