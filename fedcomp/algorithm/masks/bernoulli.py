"""Bernoulli draws as floats, by arithmetic alone: on a CPU a comparison with `torch.where` costs ten times as much."""

from __future__ import annotations

from torch import Tensor

STEEP = 2.0**60
"""Differences of a draw (a multiple of 2^-24) and a float32 probability are 0 or far above 2^-60."""


def bernoulli(probability: Tensor, draws: Tensor) -> Tensor:
    """1.0 where draws < probability, 0.0 elsewhere, exactly, as a new float32 tensor.

    Args:
        probability: any finite floats below 10^18; at most 0 is never, at least 1 always.
        draws: uniform in [0, 1), as `Key.uniform` gives them.
    """
    return (probability - draws).mul_(STEEP).clamp_(0.0, 1.0)
