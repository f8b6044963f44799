"""Priors as integer thresholds, so that both ends have the same bits.

A prior p becomes T = clip(round(p 2^b), 1, 2^b - 1), and a candidate's bit is one with probability exactly T / 2^b: a
small b is no coding error, only another prior. T is never computed from floats of two devices: both ends know counts c
of n samples, and look T up in a table. Probabilities 0 and 1 are moved inwards first, since such a coordinate could
never change again: `clip` to [c, 1 - c], or `affine`, c + (1 - 2 c) p.
"""

from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.ranges import Within

TYPES = {8: torch.uint8, 16: torch.int32, 32: torch.int64}
"""{b: type of thresholds of b bits}."""
SMALLEST_CLAMP = 2.0**-11
"""Keeps log odds between two clamped probabilities within `fixed_point.RANGE`."""
Clamp = Annotated[float, Within(f"[{SMALLEST_CLAMP}, 0.5)", "the smallest distance of p from 0 and 1")]


def clamped(p: Tensor, clamp: float, form: str) -> Tensor:
    """Probabilities p moved into [c, 1 - c]."""
    return p.clamp(clamp, 1 - clamp) if form == "clip" else clamp + (1 - 2 * clamp) * p


def quantised(p: Tensor, bits: int, clamp: float, form: str = "clip") -> Tensor:
    """Thresholds of probabilities of any shape that both ends know bit for bit, such as a prior drawn from a seed."""
    exact = clamped(p.to(torch.float64), clamp, form) * 2.0**bits
    return exact.round_().clamp_(1, 2**bits - 1).to(TYPES[bits])


def from_counts(counts: Tensor, num: int, bits: int, clamp: float, form: str = "clip") -> Tensor:
    """Thresholds of counts 0, ..., `num` out of `num`, of any shape, by a table of num + 1 entries."""
    p = torch.from_numpy(np.arange(num + 1) / num)
    table = quantised(p, bits, clamp, form).to(counts.device, non_blocking=True)
    return table[counts.to(torch.int64)]


def probability(thresholds: Tensor, bits: int) -> Tensor:
    """float32 T / 2^b: the exact prior of the candidates."""
    return thresholds.to(torch.float32) * 2.0**-bits
