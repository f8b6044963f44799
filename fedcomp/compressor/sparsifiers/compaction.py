"""Masked entries of rows, moved to the front and back, without asking the device how many there are.

Shape legend: M rows, D entries.
"""

from __future__ import annotations

import torch
from torch import Tensor


def compact(x: Tensor, mask: Tensor) -> Tensor:
    """[M, D]: the entries of x [M, D] under mask [M, D], in order, at the front of each row; zeros behind."""
    dim = x.shape[1]
    to = torch.where(mask, mask.cumsum(1) - 1, dim)
    return x.new_zeros(x.shape[0], dim + 1).scatter_(1, to, x)[:, :dim]


def expand(packed: Tensor, mask: Tensor) -> Tensor:
    """[M, D]: the inverse of `compact`, zeros where the mask is."""
    return packed.gather(1, (mask.cumsum(1) - 1).clamp_(min=0)).masked_fill_(~mask, 0)
