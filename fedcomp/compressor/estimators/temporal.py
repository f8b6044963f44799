"""Rand-k-Temporal: entries that were not sent are taken from what the server remembers of the client.

D. Jhunjhunwala, A. Mallick, A. Gadhikar, S. Kadhe, G. Joshi, "Leveraging spatial and temporal correlations in
sparsified mean estimation", NeurIPS 2021 (arXiv:2110.07751). With p the probability that an entry is sent and b_i the
server's memory of client i,

    h'_ij = b_ij + (x_ij - b_ij) / p  if entry j was sent,  b_ij  if not,        estimate = sum_i w_i h'_i.

Unbiased whatever b is; with w_i = 1/n its error is (1/n^2) (1/p - 1) sum_i ||x_i - b_i||^2. Clients need not know b_i:
they send raw values. Afterwards b_ij <- x_ij for entries sent. Memories of idle clients are kept.

With one memory for all (appendix D.1) b <- the estimate, which needs O(D) memory. The error of one round is then part
of the next one. For vectors that stay the same and weights that sum to 1, with x the weighted mean,

    MSE_{t+1} = (1/p - 1) [sum_i w_i^2 ||x_i - x||^2 + sum_i w_i^2 MSE_t],

so the error does not go to zero, and it grows exponentially where (1/p - 1) sum_i w_i^2 >= 1. That is refused. (The
estimate is sum_i w_i (1 - sent_ij / p) b_j plus what does not depend on b, and the mean square of this factor is
(1/p - 1) sum_i w_i^2 whatever the weights sum to. With random cohorts it is the mean over cohorts that counts.)

Shape legend: N clients, D entries, n entries sent.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec, Estimator
from fedcomp.compressor.estimators.spatial import check_sampling
from fedcomp.compressor.sparsifiers.sampled_entries import SampledEntries
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import put_rows, take_rows
from fedcomp.core.rows import scatter_distinct_
from fedcomp.core.validate import OptionError
from fedcomp.wire import Payload, SharedKnowledge

ROUNDING = 1e-6
"""Weights are float32: a growth factor this close below 1 counts as 1."""


@dataclass(frozen=True)
class Temporal(Estimator):
    """Decodes a sampling codec's messages against a memory: a row for each of the N clients, or one that all share."""

    memory: Literal["client", "shared"] = "client"

    def check(self, codec: Codec) -> None:
        """Only unbiased codecs that send entries as they are, each with the same probability."""
        check_sampling("Rand-k-Temporal", codec)

    def growth(self, codec: Codec, dim: int, squares: float) -> float:
        """What the mean squared error is multiplied by from round to round: (1/p - 1) sum w_i^2; 0 with own memories.

        Args:
            squares: sum_i w_i^2, or its mean over rounds.
        """
        assert isinstance(codec, SampledEntries)
        return (1 / codec.probability(dim) - 1) * squares if self.memory == "shared" else 0.0

    @property
    def recursive(self) -> bool:
        """A memory for each client never grows."""
        return self.memory == "shared"

    def check_weights(self, codec: Codec, dim: int, squares: float) -> None:
        """Raise ValueError if the mean squared error is multiplied by 1 or more every round."""
        growth = self.growth(codec, dim, squares)
        if growth < 1 - ROUNDING:
            return
        assert isinstance(codec, SampledEntries)
        p = codec.probability(dim)
        enough = math.ceil(1.02 * 1000 * squares / (1 + squares)) / 1000
        remedies = [f"send a share of {enough:g} or more (fraction)"] if enough <= 1 else []
        if squares < 1:  # several senders
            remedies.append(f"let {math.floor(1 / p - 1) + 1} or more clients of equal weight take part in a round")
        remedies.append("keep a memory for each client (estimator=temporal, or .memory=client)")
        raise OptionError(
            "estimator: Rand-k-Temporal with one shared memory would diverge: its squared error is "
            f"multiplied by (1/p - 1) sum w_i^2 = {growth:.3g} every round, and this must be below 1 (p = {p:.3g} is "
            f"the share of entries sent, and the squared weights of a round's clients sum to {squares:.3g}): "
            f"{', or '.join(remedies)}"
        )

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        return like.new_zeros(num_senders if self.memory == "client" else 1, like.shape[0])

    def estimate(
        self, codec: Codec, payload: Payload, memory: Tensor, cohort: Cohort, common: SharedKnowledge
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(codec, SampledEntries)
        known = take_rows(memory, cohort) if self.memory == "client" else memory.expand(cohort.size, -1)
        values, indices = codec.sampled(payload, common)
        padded = torch.nn.functional.pad(known, (0, 1))  # one place more, for entries that were not sent
        before = padded.gather(1, indices)
        corrected = before + (values - before) / codec.probability(common.dim)
        estimate = cohort.weight @ scatter_distinct_(padded.clone(), indices, corrected)[:, : common.dim]
        if self.memory == "shared":
            return estimate, estimate[None]
        return estimate, put_rows(memory, cohort, scatter_distinct_(padded, indices, values)[:, : common.dim])

    def expected_error(self, codec: Codec, x: Tensor) -> Tensor:
        """0-d float64 E||estimate - mean of x||^2, memory empty: Rand-k's, (1/n^2) (1/p - 1) sum ||x_i||^2."""
        assert isinstance(codec, SampledEntries)
        return x.double().square().sum() * (1 / codec.probability(x.shape[1]) - 1) / x.shape[0] ** 2
