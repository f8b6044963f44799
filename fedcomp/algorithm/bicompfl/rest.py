"""What a client of BiCompFL's SplitDL does with the blocks that its downlink does not bring.

The paper (arXiv:2502.00206) does not say. Both ends know the client's estimate theta^ and what the server decoded of
the client's posterior, q^, so that the client may

    keep   theta^ <- theta^
    qhat   theta^ <- q^
    mix    theta^ <- (1 - eta) theta^ + eta q^,    eta = share / (1 + t / half_after) in round t < until, then 0

`mix` is ours, not the paper's: `keep` is eta = 0 and moves a client's model every n rounds, `qhat` is eta = 1 and
follows one sample. Estimates are then counts of some 250, not of n_DL, and are mixed in whole numbers, so that both
ends round alike. An entry moves if eta times its distance to q^ is half such a step or more.

Shape legend: M clients of the cohort, d masked parameters.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.algorithm.masks.coded import MaskEstimate
from fedcomp.core.ranges import CheckedOptions, Whole, Within

LARGEST = 253
"""Counts of so many samples, and the code of theta_0, fit into a byte."""
STEPS = 1 << 20
"""eta is k / STEPS."""


@dataclass(frozen=True)
class Rest(CheckedOptions):
    """The rule for the other blocks; `mix_share` is eta."""

    rest: Literal["keep", "qhat", "mix"] = "keep"
    mix_share: Annotated[float | None, Within("(0, 1]", "the share of what was sent")] = None
    mix_half_after: Annotated[float | None, Within("(0, inf)", "a number of rounds")] = None
    mix_until: Annotated[int | None, Whole(meaning="the round from which blocks are kept")] = None
    prefix = "algorithm."

    def resolution(self, n_dl: int) -> int:
        """Samples that estimates are counts of: n_DL, or a multiple of it up to 253 where they are mixed."""
        return n_dl * max(1, LARGEST // n_dl) if self.rest == "mix" else n_dl

    def eta(self, round: int) -> int:
        """k in 0, ..., STEPS: the share of q^ in a round, counted from 0."""
        if self.mix_until is not None and round >= self.mix_until:
            return 0
        share = 0.2 if self.mix_share is None else self.mix_share
        return int(share / (1 + (0 if self.mix_half_after is None else round / self.mix_half_after)) * STEPS + 0.5)

    def codes(
        self, codes: Tensor, sent: Tensor, n_ul: int, theta0: Tensor, estimate: MaskEstimate, round: int
    ) -> Tensor:
        """The estimates' next codes [M, d] outside a client's part.

        Args:
            codes: [M, d] as they are. sent: [M, d] counts that the server decoded, of `n_ul` samples. theta0: [d].
        """
        num = estimate.num
        if self.rest == "qhat":
            return (sent * (num // n_ul)).to(codes.dtype)
        k = self.eta(round) if self.rest == "mix" else 0
        if not k:
            return codes
        first = estimate.thresholds(estimate.first(theta0), theta0).to(torch.int64)
        old = torch.where(estimate.known(codes), codes.to(torch.int64), _nearest(first * num, 1 << estimate.bits))
        return _nearest((STEPS - k) * n_ul * old + k * num * sent.to(torch.int64), STEPS * n_ul).to(codes.dtype)


def _nearest(numerator: Tensor, denominator: int) -> Tensor:
    """Their quotient, rounded; halves up."""
    return (2 * numerator + denominator).div(2 * denominator, rounding_mode="floor")
