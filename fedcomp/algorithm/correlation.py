"""How alike the vectors of a round are. Shape legend: M clients of the cohort, D entries."""

from __future__ import annotations

import torch
from torch import Tensor


def correlation(x: Tensor, weight: Tensor) -> Tensor:
    """R2 / R1 of the vectors M w_i x_i, in [-1, M - 1]; 0 where all are zero.

    R1 = sum_i ||x_i||^2 and R2 = 2 sum_{i<j} <x_i, x_j> = ||sum_i x_i||^2 - R1, in the notation of D. Jhunjhunwala et
    al., "Leveraging spatial and temporal correlations in sparsified mean estimation", NeurIPS 2021. It needs the true
    vectors, which no server has: a figure of the simulation, not of the method.

    Args:
        x: [M, D] vectors before compression. weight: [M] the cohort's.
    """
    rows = x * (len(weight) * weight)[:, None]
    r1 = rows.square().sum(dtype=torch.float64)
    return rows.sum(0).square().sum(dtype=torch.float64) / r1.clamp(min=torch.finfo(torch.float64).tiny) - (r1 > 0).to(
        torch.float64
    )
