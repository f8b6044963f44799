"""Rand-k-Temporal: entries that were not sent are taken from what the server remembers of the client.

D. Jhunjhunwala, A. Mallick, A. Gadhikar, S. Kadhe, G. Joshi, "Leveraging spatial and temporal correlations in
sparsified mean estimation", NeurIPS 2021 (arXiv:2110.07751). With p the probability that an entry is sent and b_i the
server's memory of client i,

    h'_ij = b_ij + (x_ij - b_ij) / p  if entry j was sent,  b_ij  if not,        estimate = sum_i w_i h'_i.

Unbiased whatever b is; with w_i = 1/n its error is (1/n^2) (1/p - 1) sum_i ||x_i - b_i||^2. Clients need not know b_i:
they send raw values. Afterwards b_ij <- x_ij for entries sent, or with one memory for all (appendix D.1) b <- the
estimate, which needs O(D) memory and whose error does not go to zero. Memories of idle clients are kept.

Shape legend: M senders, N clients, D entries, n entries sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.cohort import Cohort
from fedcomp.compressor.check import check_choice
from fedcomp.compressor.contract import Codec, Sampling
from fedcomp.compressor.spatial import check_sampling
from fedcomp.state import put_rows, take_rows
from fedcomp.wire import Common, Payload

MEMORIES = ("client", "shared")


@dataclass(frozen=True)
class Temporal:
    """Decodes a sampling codec's messages against a memory.

    Attributes:
        memory: client, one row for each of the N clients; shared, one row for all.
    """

    memory: str = "client"

    def __post_init__(self) -> None:
        check_choice("compressor.estimator.memory", self.memory, MEMORIES)

    def check(self, codec: Codec) -> None:
        """Only unbiased codecs that send entries as they are, each with the same probability."""
        check_sampling("Rand-k-Temporal", codec)

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        return like.new_zeros(num_senders if self.memory == "client" else 1, like.shape[0])

    def estimate(
        self, codec: Codec, payload: Payload, memory: Tensor, cohort: Cohort, common: Common
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(codec, Sampling)
        known = take_rows(memory, cohort) if self.memory == "client" else memory.expand(cohort.size, -1)
        values, places = codec.sampled(payload, common)
        padded = torch.nn.functional.pad(known, (0, 1))  # one place more, for entries that were not sent
        before = padded.gather(1, places)
        corrected = before + (values - before) / codec.probability(common.dim)
        estimate = cohort.weight @ padded.scatter(1, places, corrected)[:, : common.dim]
        if self.memory == "shared":
            return estimate, estimate[None]
        return estimate, put_rows(memory, cohort, padded.scatter_(1, places, values)[:, : common.dim])

    def expected_error(self, codec: Codec, x: Tensor) -> Tensor:
        """0-d float64 E||estimate - mean of x||^2, memory empty: Rand-k's, (1/n^2) (1/p - 1) sum ||x_i||^2."""
        assert isinstance(codec, Sampling)
        return x.double().square().sum() * (1 / codec.probability(x.shape[1]) - 1) / x.shape[0] ** 2
