"""Stochastic sign: one bit an entry, drawn so that it is right on average.

M. Safaryan, P. Richtarik, "Stochastic sign descent methods", ICML 2021, with scale `l2`; S. Li et al., "FedMRN", 2024,
compare with it as "stochastic binarisation" and name no scale, which is why ours is the smallest unbiased one, `max`.
For an entry u and a scale a, the bit is +1 with probability clip((u + a) / (2 a), 0, 1), and it is decoded to +-a.
With c = clip(u, -a, a): the mean is c, and E||C(u) - u||^2 = sum (a^2 - c^2) + (c - u)^2; for `l2` that is
(d - 1) ||u||^2. With `fixed` a message carries at most a an entry, so with feedback=error the memory of what is left
out grows without bound wherever updates are larger. The papers count 1 bit an entry; the scales are counted here.

Shape legend: M senders, L blocks with a scale of their own.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.quantisers.block_scales import (
    Granularity,
    block_norms,
    block_sizes,
    largest_block,
    multiply_,
    signs_times_scales,
)
from fedcomp.core.ranges import Within
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float, Unsigned


@dataclass(frozen=True)
class StochasticSign(Codec):
    """Sends random signs and their scale a; unbiased where a is never below the largest entry.

    Attributes:
        scale: max, a = max |u|; l2, a = ||u||_2; mean_abs, a = `factor` ||u||_1 / d; these are sent. fixed, a =
            `value`, known to both ends and not sent.
        factor: below the ratio of the largest entry to the mean, entries are clipped.
    """

    scale: Literal["max", "l2", "fixed", "mean_abs"] = "max"
    value: Annotated[float, Within("(0, inf)", "what a sign is decoded to")] = 0.005
    factor: Annotated[float, Within("(0, inf)", "the scale in units of the mean of |u|")] = 1.0
    granularity: Granularity = "layer"

    @property
    def unbiased(self) -> bool:
        """The other scales clip what is larger."""
        return self.scale in ("max", "l2")

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float:
        """m - 1 of the largest block of m entries, for the unbiased scales."""
        return float(largest_block(self.granularity, layers) - 1)

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """One bit an entry (1 for +), and the scales: with U uniform, (U - 1/2) 2 a < u has the bit's probability."""
        threshold = sender_key.uniform(common.ids, common.dim).sub_(0.5)
        if self.scale == "fixed":
            signs = (threshold.mul_(2.0 * self.value) < x).to(torch.uint8)
            return Payload({"signs": Field(signs, Unsigned(1))}, paper_bits=common.dim)
        sizes = block_sizes(self.granularity, common)
        scales = self._scales(x, sizes)
        signs = (multiply_(threshold, 2.0 * scales, sizes) < x).to(torch.uint8)
        fields = {"signs": Field(signs, Unsigned(1)), "scales": Field(scales, Float())}
        return Payload(fields, paper_bits=common.dim)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """+-a, the scale of each block repeated over its entries."""
        value = self.value if self.scale == "fixed" else None
        return signs_times_scales(payload, value, self.granularity, common)

    def _scales(self, x: Tensor, sizes: list[int]) -> Tensor:
        """[M, L] a of each block."""
        if self.scale == "mean_abs":
            shares = self.factor / torch.tensor(sizes, dtype=x.dtype, device="cpu")
            return block_norms(x, sizes, 1) * shares.to(x.device, non_blocking=True)
        return block_norms(x, sizes, 2 if self.scale == "l2" else float("inf"))
