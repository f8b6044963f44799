"""Rand-k sparsification: k entries drawn uniformly without replacement, the same number for every sender.

S. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018; the baseline and the first stage of
D. Jhunjhunwala, A. Mallick, A. Gadhikar, S. Kadhe, G. Joshi, "Leveraging spatial and temporal correlations in
sparsified mean estimation", NeurIPS 2021 (arXiv:2110.07751). Both ends draw the indices from a shared seed, so only
values travel; the paper counts "k coordinates", 32 k bits. Senders draw independently of each other: with one mask for
all, the error of the mean would not shrink with their number.

Shape legend: M senders, D entries, k entries sent.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.compressor.seed import seed_field, seed_layout, shared_source
from fedcomp.compressor.sparsifiers.num_kept import Sparsifier
from fedcomp.compressor.sparsifiers.sampled_entries import SampledEntries
from fedcomp.compressor.sparsifiers.sparse_indices import IndexCode, index_code, index_field, index_layout, read_indices
from fedcomp.core.rows import scatter_distinct_
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float


@dataclass(frozen=True)
class RandK(SampledEntries, Sparsifier):
    """Sends k random entries; decodes them times D / k (unbiased), or as they are (contractive, delta = k / D).

    Attributes:
        places: seed, drawn by both ends; or auto, index, bitmap, rice (sparse_indices.py): the sender draws and sends.
            As `positions` of Top-k, with one value more; both are keys in users' commands and in the hashes of runs.
    """

    places: Literal["seed"] | IndexCode = "seed"

    def probability(self, dim: int) -> float:
        """p = k / D."""
        return self.num_sent(dim) / dim

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The seed or the indices, and the values in the order of their indices."""
        k = self.num_sent(common.dim)
        if self.places == "seed":
            fields = seed_field(self.seed_cost, common, sender_key)
            indices = self._drawn(Payload(fields), common)
        else:
            indices = sender_key.fold_in("places").choice(common.ids, k, common.dim)
            fields = index_field(index_code(self.places, k, common.dim), indices, common.dim)
        return Payload(fields | {"values": Field(x.gather(1, indices), Float())}, paper_bits=32 * k)

    def sampled(self, payload: Payload, common: SharedKnowledge) -> tuple[Tensor, Tensor]:
        """(values [M, k] as they are, indices [M, k])."""
        k = self.num_sent(common.dim)
        if self.places == "seed":
            values = payload.expect(**seed_layout(self.seed_cost), values=k)[-1]
            return values, self._drawn(payload, common)
        code = index_code(self.places, k, common.dim)
        sent, values = payload.expect(**index_layout(code, k, common.dim), values=k)
        return values, read_indices(code, sent, k)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        values, indices = self.sampled(payload, common)
        if self.scale == "unbiased":
            values = values * (common.dim / self.num_sent(common.dim))
        return scatter_distinct_(torch.zeros(values.shape[0], common.dim, device=values.device), indices, values)

    def _drawn(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        key, ids = shared_source(payload, common)
        return key.fold_in("places").choice(ids, self.num_sent(common.dim), common.dim)
