"""Rand-k-Spatial: an entry is scaled by how many clients sent it, as far as clients' vectors are alike.

D. Jhunjhunwala, A. Mallick, A. Gadhikar, S. Kadhe, G. Joshi, "Leveraging spatial and temporal correlations in
sparsified mean estimation", NeurIPS 2021 (arXiv:2110.07751). With n senders, p the probability that an entry is sent,
M_j the number of clients that sent entry j and h_ij the values received,

    x_j = (1/n) beta / T(M_j) sum_i h_ij  (0 if nobody sent it),     1 / beta = p E[1 / T(1 + Bin(n - 1, p))],

which is unbiased for every T. T follows from R2 / R1, the correlation of the clients' vectors:
R1 = sum ||x_i||^2, R2 = 2 sum_{i<l} <x_i, x_l> = ||sum x_i||^2 - R1, in [-1, n - 1] times R1:

    T(m) = 1 + (R2 / R1) (m - 1) / (n - 1)        max: R2/R1 = n - 1    avg: n / 2    opt: known    Rand-k: 0

`online` is ours: R1 and R2 are estimated without bias from the values received, R1 by sum ||h_i||^2 / p and R2 by
(||sum h_i||^2 - sum ||h_i||^2) / p^2, averaged over earlier rounds, so that T is chosen before the round is seen and
the estimate stays unbiased. It costs no bits. The first round takes avg.

The paper's proof conditions on M_j >= 1 in words (lemma 2, A.2); the sums that it uses, and that are right, are those
of 1 + Bin(n - 1, p). With the zero-truncated binomial the estimate would be biased.

Weights other than 1/n enter as n w_i x_i. Shape legend: n senders, D entries.
"""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.estimators.correlation import ALL_OPPOSED, AssumedCorrelation
from fedcomp.compressor.sparsifiers.sampled_entries import SampledEntries
from fedcomp.core.cohort import Cohort
from fedcomp.core.rows import scatter_distinct_
from fedcomp.core.validate import OptionError
from fedcomp.wire import Payload, SharedKnowledge


def check_sampling(name: str, codec: Codec) -> None:
    """Raise ValueError unless the codec samples entries, unbiased by itself, which is what `name` needs.

    The estimators scale what arrives, whatever the codec's own scale: a sender that remembers what an unscaled codec
    leaves out would send about D / k times too much in the end.
    """
    if not isinstance(codec, SampledEntries):
        raise OptionError(
            f"estimator: {name} makes no sense for {type(codec).__name__}: it needs a codec that sends a "
            "random part of the entries as they are, each with the same probability; use compressor=randk or "
            "random_mask, or estimator=weighted_sum (of random projections: proj_avg, proj_max, proj_online)"
        )
    if not codec.unbiased:
        raise OptionError(
            f"estimator: {name} scales entries up by itself, but {type(codec).__name__} as configured is to "
            "be decoded as it is: take scale=unbiased and feedback=none, or "
            "estimator=weighted_sum"
        )


@dataclass(frozen=True)
class Spatial(AssumedCorrelation):
    """Decodes a sampling codec's messages jointly."""

    transforms: ClassVar[tuple[str, ...]] = ("max", "avg", "opt", "online")

    def check(self, codec: Codec) -> None:
        """Only unbiased codecs that send entries as they are, each with the same probability, independently."""
        check_sampling("Rand-k-Spatial", codec)

    def estimate(
        self, codec: Codec, payload: Payload, memory: Tensor, cohort: Cohort, common: SharedKnowledge
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(codec, SampledEntries)
        num, dim, p = cohort.size, common.dim, codec.probability(common.dim)
        values, indices = codec.sampled(payload, common)
        rows = values.new_zeros(2, num, dim + 1)  # values and ones; one place more, for entries that were not sent
        scatter_distinct_(rows[0], indices, values * (num * cohort.weight)[:, None])
        scatter_distinct_(rows[1], indices, torch.ones_like(values))
        total, senders = rows[:, :, :dim].sum(1)
        table = self._table(num, p, memory)
        if self.transform == "online":
            own = rows[0, :, :dim].square().sum()
            memory = self.learnt(memory, own / p, (total.square().sum() - own) / p**2)
        return total * table.index_select(0, senders.to(torch.int64)), memory

    def expected_error(self, codec: Codec, x: Tensor) -> Tensor | None:
        """0-d float64 E||estimate - mean of x||^2 for rows x [n, D] and weights 1/n; None where T is learnt.

        (1/n^2) [(1/p - 1) R1 + c1 R1 - c2 R2], c1 = beta^2 p E[T(1 + Bin(n-1, p))^-2] - 1/p and
        c2 = 1 - beta^2 p^2 E[T(2 + Bin(n-2, p))^-2].
        """
        if self.transform == "online":
            return None
        assert isinstance(codec, SampledEntries)
        num, p = x.shape[0], codec.probability(x.shape[1])
        r1 = x.double().square().sum()
        r2 = x.double().sum(0).square().sum() - r1
        transform = _transform(num, self.assumed(num))
        if transform[-1] <= ALL_OPPOSED:
            return (r1 + r2) / num**2
        beta = 1 / (p * float(_binomial(num - 1, p) @ (1 / transform)))
        c1 = beta**2 * p * float(_binomial(num - 1, p) @ transform**-2) - 1 / p
        c2 = 1 - beta**2 * p**2 * float(_binomial(num - 2, p) @ transform[1:] ** -2) if num > 1 else 0.0
        return ((1 / p - 1 + c1) * r1 - c2 * r2) / num**2

    def _table(self, num: int, p: float, memory: Tensor) -> Tensor:
        """[n + 1] float32 factor beta / (n T(m)) of a sum that m clients sent; 0 for m = 0."""
        fixed = torch.from_numpy(_factors(num, p, self.assumed(num))).to(
            memory.device, torch.float32, non_blocking=True
        )
        if self.transform != "online" or num == 1:
            return fixed
        r1, r2, seen = memory[0].double()
        place = torch.arange(num, device=memory.device, dtype=torch.float64) / (num - 1)  # (m - 1) / (n - 1)
        # Kept off the end -1, where T(n) = 0: an estimate of R2/R1 is never sure.
        ratio = (r2 / r1.clamp(min=1e-30)).clamp(-0.9, num - 1.0)
        inverse = 1 / (1 + ratio * place)
        weights = torch.from_numpy(_binomial(num - 1, p)).to(memory.device, non_blocking=True)
        learnt = inverse / (p * (weights @ inverse) * num)
        learnt = torch.cat((learnt.new_zeros(1), learnt)).to(torch.float32)
        return torch.where(seen > 0, learnt, fixed)


def _transform(num: int, ratio: float) -> np.ndarray:
    """[n] T(m) for m = 1..n."""
    return 1 + ratio * np.arange(num) / max(num - 1, 1)


@functools.lru_cache(maxsize=256)
def _factors(num: int, p: float, ratio: float) -> np.ndarray:
    """[n + 1] beta / (n T(m)) for m = 0..n, 0 at m = 0; all 0 where T(n) = 0."""
    transform = _transform(num, ratio)
    if transform[-1] <= ALL_OPPOSED:
        return np.zeros(num + 1)
    inverse = 1 / transform
    return np.concatenate(([0.0], inverse / (p * float(_binomial(num - 1, p) @ inverse) * num)))


@functools.lru_cache(maxsize=256)
def _binomial(trials: int, p: float) -> np.ndarray:
    """[trials + 1] probabilities of Bin(trials, p), through logarithms, so that hundreds of trials do not underflow."""
    if p == 1:
        return np.eye(trials + 1)[-1]
    m = np.arange(trials + 1)
    ways = math.lgamma(trials + 1) - np.array([math.lgamma(i + 1) + math.lgamma(trials - i + 1) for i in m])
    return np.exp(ways + m * math.log(p) + (trials - m) * math.log1p(-p))
