"""Random masking: every entry is sent with probability p, independently of all others.

J. Konečný et al., "Federated learning: strategies for improving communication efficiency", 2016 ("random mask"). Both
ends draw the mask from a shared seed, so only the values travel, and their number, which varies from message to
message, need not be sent.

Shape legend: M senders, D entries.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.compressor.seed import seed_field, seed_layout, shared_source
from fedcomp.compressor.sparsifiers.sampled_entries import SampledEntries
from fedcomp.compressor.sparsifiers.sparse_indices import compact, expand
from fedcomp.core.ranges import Within
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float


@dataclass(frozen=True)
class RandomMask(SampledEntries):
    """Sends masked entries; decodes them times 1 / p (unbiased), or as they are (contractive, delta = p)."""

    fraction: Annotated[float, Within("(0, 1]", "the share of entries that is sent")] = 0.03

    def probability(self, dim: int) -> float:
        """p, rounded to the 24 bits of a uniform draw."""
        return max(1, round(self.fraction * 2**24)) * 2.0**-24

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The seed, and the masked entries one after another."""
        fields = seed_field(self.seed_cost, common, sender_key)
        mask = self._mask(Payload(fields), common)
        fields["values"] = Field(compact(x, mask), Float(), mask.sum(1), count_known=True)
        return Payload(fields, paper_bits=round(32 * self.fraction * common.dim))

    def sampled(self, payload: Payload, common: SharedKnowledge) -> tuple[Tensor, Tensor]:
        """(values [M, D], indices [M, D]), of which each row uses as many as its mask has ones."""
        values, mask = self._read(payload, common)
        every = torch.arange(common.dim, device=mask.device).expand(mask.shape)
        sent = every < mask.sum(1, keepdim=True)
        return values, compact(every, mask).masked_fill(~sent, common.dim)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """The values under the mask, scaled, zero elsewhere."""
        values = expand(*self._read(payload, common))
        return values.div_(self.probability(common.dim)) if self.scale == "unbiased" else values

    def _read(self, payload: Payload, common: SharedKnowledge) -> tuple[Tensor, Tensor]:
        """(values, the mask that they were sent under), both [M, D]."""
        return payload.expect(**seed_layout(self.seed_cost), values=common.dim)[-1], self._mask(payload, common)

    def _mask(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        key, ids = shared_source(payload, common)
        return key.fold_in("mask").uniform(ids, common.dim) < self.probability(common.dim)
