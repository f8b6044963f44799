"""Stochastic binarisation with a step size of each tensor, its gradients, and columns that hold the step sizes.

    S(m, alpha) = +alpha with probability clip((m / alpha + 1) / 2, 0, 1), else -alpha
    d/dm = g 1{|m| <= alpha};   d/dalpha = sum_j g_j c_j, c = +-1 where |m| > alpha, (S - m) / alpha between

with g the gradient at S, as autograd has it for alpha (x + stop(sign - x)), x = clip(m / alpha, -1, 1). E S = clip(m,
-alpha, alpha), and its variance is alpha^2 - m^2 inside. A step size is trained as lambda = ln alpha.

Shape legend: A clients, d binarised entries in L tensors.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.masks.training import bernoulli

NOTHING = 1e-20
"""A mean |m| below this is 0: such a tensor sends the step size 0."""


@dataclass(frozen=True)
class StepSizes:
    """Step sizes alpha in [smallest, largest], or 0, of tensors whose `sizes` sum to d."""

    sizes: tuple[int, ...]
    smallest: float
    largest: float

    def alpha(self, log: Tensor) -> Tensor:
        """alpha [A, L] of lambda [A, L]."""
        return torch.where(log < math.log(NOTHING), 0.0, log.exp().clamp(self.smallest, self.largest))

    def is_free(self, log: Tensor) -> Tensor:
        """[A, L] whether alpha lies between its bounds."""
        return (log > math.log(self.smallest)) & (log < math.log(self.largest))

    def mean_log(self, m: Tensor) -> Tensor:
        """[A, L] ln mean |m| of each tensor of m [A, d]."""
        # made on the device, since a CUDA graph captures no copy from the host
        sizes = torch.stack([m.new_full((), size) for size in self.sizes])
        return (self.sums(m.abs()) / sizes).clamp(min=NOTHING / 10).log()

    def sums(self, entries: Tensor) -> Tensor:
        """[A, L] sum of each tensor of entries [A, d]."""
        return torch.stack([part.sum(1) for part in entries.split(self.sizes, 1)], 1)

    def spread(self, alpha: Tensor) -> Tensor:
        """[A, d] alpha [A, L], repeated over the entries of each tensor."""
        return torch.cat([alpha[:, place, None].expand(-1, size) for place, size in enumerate(self.sizes)], 1)


def probability(m: Tensor, alpha: Tensor) -> Tensor:
    """[A, d] of a sign +1, given each entry's alpha [A, d]; not clipped."""
    return (m / alpha.clamp(min=torch.finfo(m.dtype).tiny) + 1.0).mul_(0.5)


def binarise(m: Tensor, alpha: Tensor, draws: Tensor) -> Tensor:
    """S(m, alpha) [A, d] by uniform draws [A, d]."""
    chance = probability(m, alpha).clamp_(0.0, 1.0)
    return bernoulli(chance, draws).mul_(2.0).sub_(1.0).to(m.dtype) * alpha


def slopes(m: Tensor, alpha: Tensor, binarised: Tensor) -> tuple[Tensor, Tensor]:
    """What g [A, d] is multiplied by for d/dm, and for the terms of d/dalpha: 1{|m| <= alpha} and c."""
    inside = m.abs() <= alpha
    between = (binarised - m) / alpha.clamp(min=torch.finfo(m.dtype).tiny)
    return inside.to(m.dtype), torch.where(inside, between, m.sign())
