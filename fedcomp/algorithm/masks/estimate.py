"""Estimates of a mask's probabilities that two ends hold alike to the bit: counts of samples.

What minimal random coding decodes is how many of n samples have a one. An estimate is kept as that count, and priors
are looked up from it, never computed from floats that two devices made. Until the first samples of an entry have come,
its code is n + 1, and its probability is theta_0, which follows from the run's seed.

Shape legend: N clients, D entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.mrc.thresholds import clamped, from_counts, quantised


@dataclass(frozen=True)
class MaskEstimate:
    """How codes are read.

    Attributes:
        num: n, samples behind a count.
        bits: of a threshold. clamp, form: how probabilities are kept away from 0 and 1 where they are priors; with the
            form "affine" they are so everywhere.
    """

    num: int
    bits: int = 8
    clamp: float = 0.01
    form: str = "clip"

    def first(self, like: Tensor) -> Tensor:
        """Codes of the shape and device of `like` that all mean theta_0."""
        return torch.full(like.shape, self.num + 1, dtype=self.dtype, device=like.device)

    @property
    def dtype(self) -> torch.dtype:
        """The narrowest type of a code."""
        return torch.uint8 if self.num + 1 < 256 else torch.int32

    def known(self, codes: Tensor) -> Tensor:
        """Whether a code is a count."""
        return codes <= self.num

    def probability(self, codes: Tensor, theta0: Tensor) -> Tensor:
        """float32 theta of codes [..., D], with theta0 [D]."""
        share = codes.to(torch.float32) / self.num
        if self.form == "affine":
            share = clamped(share, self.clamp, self.form)
        return torch.where(self.known(codes), share, theta0)

    def thresholds(self, codes: Tensor, theta0: Tensor) -> Tensor:
        """Integer priors of codes [..., D]."""
        looked_up = from_counts(codes.clamp(max=self.num), self.num, self.bits, self.clamp, self.form)
        first = quantised(theta0, self.bits, self.clamp)
        return torch.where(self.known(codes), looked_up, first)
