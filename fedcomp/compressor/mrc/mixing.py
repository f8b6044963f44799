"""The prior of BiCompFL-PR with prior optimisation: a mixture of two vectors that both ends know.

    p(lam) = lam theta + (1 - lam) q_before,    lam* = argmin over [0, 1] of sum_e kl(q_e || p_e(lam))

theta is the client's estimate of the global model, q_before its previous decoded posterior (the paper writes the
current one, which the server does not have yet). Both are counts of few samples, so there are few pairs of counts (c,
c'), and p is the same for all coordinates with one pair. The objective therefore needs, for each pair, the number of
its coordinates and the sum of their q, which one pass over the vector gives. lam is sent as k / 255 in 8 bits, which
the paper does not count; the best k is found by bisection on the sign of the derivative,

    f'(lam) = sum_e (theta - q_before)_e (p_e - q_e) / (p_e (1 - p_e)).

Shape legend: M clients, D entries, G pairs of counts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.mrc.thresholds import TYPES, clamped
from fedcomp.core.rows import add_distinct_
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Unsigned

STEPS = 255
"""lam = k / STEPS."""


@dataclass(frozen=True)
class Mixture:
    """Mixtures of two priors that are given by counts.

    Attributes:
        num_first: number of samples of theta. num_second: of q_before.
        bits: of the thresholds. clamp, form: how both are moved away from 0 and 1 before they are mixed.
    """

    num_first: int
    num_second: int
    bits: int = 8
    clamp: float = 0.01
    form: str = "clip"

    def best(self, q: Tensor, first: Tensor, second: Tensor, mixes: Tensor) -> Tensor:
        """[M] int64 the best k in 0, ..., 255 for posteriors q [M, D] and counts first, second [M, D].

        Only entries with mixes [M, D] true have both counts; if there are none, k is 255.
        """
        q = q.clamp(self.clamp, 1 - self.clamp).to(torch.float64)
        pairs, num = self._pairs(first, second), (self.num_first + 1) * (self.num_second + 1)
        zeros = q.new_zeros(len(q), num)
        sums = zeros.scatter_add(1, pairs, torch.where(mixes, q, 0.0))
        counts = add_distinct_(zeros.clone(), pairs, mixes.to(q.dtype))  # whole numbers: exact in any order
        low, high = torch.zeros(len(q), 1, device=q.device), torch.full((len(q), 1), float(STEPS), device=q.device)
        for _ in range(STEPS.bit_length()):  # f' <= 0 at low, unless that is 0; f' > 0 at high, unless that is 255
            middle = ((low + high) / 2).floor_()
            rising = self._slope(middle, counts, sums) > 0
            low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
        better = self._divergence(high, counts, sums) <= self._divergence(low, counts, sums)
        return torch.where(better, high, low)[:, 0].to(torch.int64)

    def thresholds(self, codes: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """[M, D] thresholds of p(lam) for codes [M] and counts [M, D], by a table of all pairs; code 255 is theta."""
        pairs = self._pairs(first, second)
        table = (self._mixed(codes.to(torch.float64)[:, None]) * 2.0**self.bits).round_()
        return table.clamp_(1, 2**self.bits - 1).gather(1, pairs).to(TYPES[self.bits])

    def _pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """[M, D] int64 index of the pair, c (num_second + 1) + c'."""
        return first.to(torch.int64) * (self.num_second + 1) + second.to(torch.int64)

    def _ends(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """(theta, q_before) [G] float64 of each pair."""
        first = torch.arange(self.num_first + 1, dtype=torch.float64, device=like.device) / self.num_first
        second = torch.arange(self.num_second + 1, dtype=torch.float64, device=like.device) / self.num_second
        first, second = (clamped(end, self.clamp, self.form) for end in (first, second))
        return first.repeat_interleave(len(second)), second.repeat(len(first))

    def _mixed(self, codes: Tensor) -> Tensor:
        """[M, G] float64 p(k / 255) of each pair, for codes [M, 1]; exactly theta at 255."""
        theta, before = self._ends(codes)
        return torch.where(codes == STEPS, theta, (codes * theta + (STEPS - codes) * before) / STEPS)

    def _slope(self, codes: Tensor, counts: Tensor, sums: Tensor) -> Tensor:
        theta, before = self._ends(codes)
        p = self._mixed(codes)
        return ((theta - before) * (counts * p - sums) / (p * (1 - p))).sum(1, keepdim=True)

    def _divergence(self, codes: Tensor, counts: Tensor, sums: Tensor) -> Tensor:
        """[M, 1] f without the terms that do not depend on lam."""
        p = self._mixed(codes)
        return -(sums * p.log() + (counts - sums) * (1 - p).log()).sum(1, keepdim=True)


def message(codes: Tensor) -> Payload:
    """The message of codes [M]: 8 bits per client."""
    return Payload({"mixture": Field(codes[:, None], Unsigned(8, STEPS + 1))})


def received(payload: Payload) -> Tensor:
    """[M] int64 the codes in a message."""
    (codes,) = payload.expect(mixture=1)
    return codes[:, 0].to(torch.int64)
