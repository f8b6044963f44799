"""Directional derivatives from losses alone, along random directions that a number names.

    forward   g = (f(y + mu z) - f(y)) / mu, which is z^T grad f + (mu / 2) z^T H z + O(mu^2)
    central   g = (f(y + mu z) - f(y - mu z)) / (2 mu), which is z^T grad f + O(mu^2)

With E[z z^T] = I, E[g z] is the gradient up to O(mu^2) either way (Y. Nesterov, V. Spokoiny, "Random gradient-free
minimization of convex functions", Foundations of Computational Mathematics 2017). Both losses of a difference are of
the same samples and dropout masks, and in float64: at mu = 1e-3 what is left is the rounding of a float32 network.

Shape legend: A clients at work, D parameters, C running statistics, G directions at once, R streams of directions.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.client import Batch, LocalData
from fedcomp.compressor.projections.directions import Distribution, Source
from fedcomp.core.ranges import CheckedOptions, Within
from fedcomp.random.keys import Key

RunningStats = Literal["refuse", "gather"]
ALIGNED = 128
"""A direction's draws begin at a multiple of this."""
VALUES_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 25}
"""Numbers of perturbed models that exist at once, or one model a client if that is more: what stays in a CPU's caches;
on a GPU, where a model is too little work, 128 MiB."""


@dataclass(frozen=True)
class TwoPoint(CheckedOptions):
    """How a directional derivative is estimated.

    Attributes:
        mu: smoothing, the length of a step along a direction; a shorter one than 1e-8 vanishes in rounding.
        distribution: of directions: gaussian N(0, I); rademacher, +-1; sphere, sqrt(D) times a random unit vector.
    """

    mu: Annotated[float, Within("[1e-8, 1e3]", "the step along a direction, such as 0.001")] = 1e-3
    difference: Literal["central", "forward"] = "central"
    distribution: Distribution = "gaussian"
    prefix = "algorithm."

    @property
    def at_centre(self) -> int:
        """Losses at y itself that a step takes: 1 or 0."""
        return 1 if self.difference == "forward" else 0

    def evaluations(self, num: int) -> int:
        """Losses that a step with `num` directions takes."""
        return num * (1 if self.difference == "forward" else 2) + self.at_centre

    def last_forward(self, stats: Tensor) -> int:
        """Losses that a client computes only for its running statistics [C], after its last step: 1 or 0.

        The forward difference has them from the loss at y itself.
        """
        return 1 if stats.shape[0] and not self.at_centre else 0

    def directions(self, numbers: Tensor, num: int, first: int, dim: int) -> Tensor:
        """[R, num, D] float32: the directions `first`, `first` + 1, ... of the streams that `numbers` [R] name."""
        wide = -(-dim // ALIGNED) * ALIGNED
        draws = Source(Key(("seed",)), numbers).draw(self.distribution, num * wide, first * wide)
        z = draws.view(-1, num, wide)[:, :, :dim]
        if self.distribution != "sphere":
            return z
        return z * (math.sqrt(dim) / torch.linalg.vector_norm(z, dim=2, keepdim=True, dtype=torch.float64)).to(z.dtype)

    def scalars(
        self, data: LocalData, y: Tensor, z: Tensor, batch: Batch, step: int, centre: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Derivatives g [A, G] float32 at y [A, D] along z [1 or A, G, D], and the mean of the losses [A] float64.

        Args:
            centre: [A] the loss at y, for the forward difference.
        """
        moves = (self.mu * z).to(y.dtype)
        if centre is not None:
            losses, _ = data.losses(y[:, None] + moves, batch, step)
            return ((losses - centre[:, None]) / self.mu).to(torch.float32), losses.mean(1)
        losses, _ = data.losses(torch.cat((y[:, None] + moves, y[:, None] - moves), 1), batch, step)
        plus, minus = losses.chunk(2, 1)
        return ((plus - minus) / (2 * self.mu)).to(torch.float32), losses.mean(1)


def directions_at_once(y: Tensor) -> int:
    """G for clients at y [A, D], at least 1."""
    return max(1, values_at_once(y) // max(2 * y.numel(), 1))


def values_at_once(like: Tensor) -> int:
    """`VALUES_AT_ONCE` on this tensor's device."""
    return VALUES_AT_ONCE["cuda" if like.device.type == "cuda" else "cpu"]


def check_stats(name: str, running_stats: str, stats: Tensor) -> None:
    """Raise ValueError for a model with running statistics, unless they are to be gathered."""
    if stats.shape[0] and running_stats == "refuse":
        raise ValueError(
            f"algorithm={name}: this model has BatchNorm, whose {stats.shape[0]} running statistics no scalar "
            "carries: take algorithm.running_stats=gather, which sends them as floats, or another model"
        )


def finite(scalars: Tensor) -> Tensor:
    """Scalars with 0 for those that are not finite; the metric `message/scalar` then stops the run."""
    return scalars.nan_to_num(0.0, 0.0, 0.0)
