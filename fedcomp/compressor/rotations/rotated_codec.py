"""What DRIVE and EDEN share: options, and the one number that goes with a quantised piece of the rotated vector.

Shape legend: M senders, c entries of a piece.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fedcomp.compressor.seed import SEEDS
from fedcomp.core.validate import check_choice, check_count

SCALES = ("min_mse", "unbiased")


class RotatedCodec(Protocol):
    """Options of a codec that rotates a vector at random, quantises it, and fits a scale to each piece.

    Attributes:
        scale: min_mse, or unbiased (`fit_scale`).
        rotations: how often the random rotation is repeated; 2 for sparse vectors.
        seed: sent, 64 bits a message; derived, from names that both ends know.
    """

    @property
    def scale(self) -> str: ...
    @property
    def rotations(self) -> int: ...
    @property
    def seed(self) -> str: ...

    def __post_init__(self) -> None:
        check_choice("compressor.scale", self.scale, SCALES)
        check_count("compressor.rotations", self.rotations)
        check_choice("compressor.seed", self.seed, SEEDS)

    @property
    def unbiased(self) -> bool:
        """As far as the rotation is uniformly random: close to it on dense vectors."""
        return self.scale == "unbiased"

    @property
    def contractive(self) -> bool:
        """The unbiased scale lengthens the vector: of one bit its error is 0.57 ||x||^2, on dense vectors only."""
        return self.scale == "min_mse"


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


def plus_minus(bits: Tensor) -> Tensor:
    """float32 -1 for 0 and +1 for 1."""
    return bits.to(torch.float32).mul_(2.0).sub_(1.0)
