"""How alike the vectors of a round are. Shape legend: M clients of the cohort, D entries."""

from __future__ import annotations

import torch
from torch import Tensor

TINY = torch.finfo(torch.float64).tiny


def correlation(x: Tensor, weight: Tensor) -> Tensor:
    """R2 / R1 of the vectors M w_i x_i, in [-1, M - 1]; 0 where all are zero.

    R1 = sum_i ||x_i||^2 and R2 = 2 sum_{i<j} <x_i, x_j> = ||sum_i x_i||^2 - R1, in the notation of D. Jhunjhunwala et
    al., "Leveraging spatial and temporal correlations in sparsified mean estimation", NeurIPS 2021. It needs the true
    vectors, which no server has: a figure of the simulation, not of the method.

    Args:
        x: [M, D] vectors before compression. weight: [M] the cohort's; rows of weight 0 change nothing.
    """
    rows = (x * (len(weight) * weight)[:, None]).double()
    r1 = rows.square().sum()
    return torch.where(r1 > 0, rows.sum(0).square().sum() / r1.clamp(min=TINY) - 1, 0.0)
