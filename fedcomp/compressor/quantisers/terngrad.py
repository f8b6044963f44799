"""TernGrad: every entry as -1, 0 or +1 times one scale a tensor, five of them in a byte.

W. Wen et al., "TernGrad: ternary gradients to reduce communication in distributed deep learning", NeurIPS 2017,
equations 2 to 5, layer-wise. s = max |u|, t = sign(u) Bernoulli(|u| / s), decoded to s t: unbiased, and
E||C(u) - u||^2 = s ||u||_1 - ||u||^2. The paper clips entries at 2.5 standard deviations first (section 4), which
is biased towards small values and therefore off here unless asked for; s is the largest entry that is left, not the
threshold. It counts log2(3) bits an entry; trits in bytes take 1.6, and the scales are counted.

Shape legend: M senders, d entries of a block.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.quantisers.block_scales import (
    Granularity,
    block_norms,
    block_sizes,
    from_levels,
    largest_block,
    to_levels,
)
from fedcomp.core.ranges import Within
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Digits, Float


@dataclass(frozen=True)
class TernGrad(Codec):
    """Sends trits and their scale; unbiased unless it clips."""

    clip: Annotated[float | None, Within("(0, inf)", "standard deviations, the paper's is 2.5; null: no clipping")] = (
        None
    )
    granularity: Granularity = "layer"

    @property
    def unbiased(self) -> bool:
        return self.clip is None

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float:
        """(sqrt(m) - 1) / 2 of the largest block of m entries."""
        return (math.sqrt(largest_block(self.granularity, layers)) - 1) / 2

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """t + 1 of each entry, and the scales."""
        sizes = block_sizes(self.granularity, common)
        if self.clip is not None:
            clipped = torch.empty_like(x)
            for part, out in zip(x.split(sizes, dim=1), clipped.split(sizes, dim=1), strict=True):
                bound = self.clip * _deviation(part)
                torch.clamp(part, -bound, bound, out=out)
            x = clipped
        scales = block_norms(x, sizes, float("inf"))
        trits = to_levels(x, scales, sizes, 1, sender_key.uniform(common.ids, common.dim))
        fields = {"trits": Field(trits, Digits(3)), "scales": Field(scales, Float())}
        return Payload(fields, paper_bits=math.ceil(common.dim * math.log2(3)))

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """s t."""
        sizes = block_sizes(self.granularity, common)
        trits, scales = payload.expect(trits=common.dim, scales=len(sizes))
        return from_levels(trits, scales, sizes, 1)


def _deviation(part: Tensor) -> Tensor:
    """[M, 1] standard deviation of a block [M, d]; infinite where all entries are equal, since none is an outlier."""
    mean = part.mean(1, keepdim=True)
    deviation = torch.linalg.vector_norm(part - mean, dim=1, keepdim=True) * part.shape[1] ** -0.5
    return deviation.masked_fill_(deviation <= 1e-6 * mean.abs(), float("inf"))
