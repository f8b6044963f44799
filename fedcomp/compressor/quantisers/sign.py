"""Scaled sign: one bit an entry and one scale a tensor.

J. Bernstein et al., "signSGD", ICML 2018; with the scale ||x||_1 / d of S. P. Karimireddy et al., "Error feedback
fixes SignSGD", ICML 2019, which minimises ||x - a sign(x)||^2: what is left is ||x||^2 - ||x||_1^2 / d exactly.
sign(0) = +1, so that one bit is enough. The papers count 1 bit an entry; the scales are counted here.
With a fixed scale a message carries at most `value` an entry, so with feedback=error the memory of what is left out
grows without bound wherever updates are larger; EF21 (algorithm/bicompfl/bicompfl_cfl.py) stays bounded.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.quantisers.block_scales import Granularity, block_sizes, signs_times_scales
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float, Unsigned


@dataclass(frozen=True)
class Sign(Codec):
    """Sends sign(x) and its scale a; biased. The fixed scale of 1 leaves the step to the server's learning rate."""

    scale: Literal["mean_abs", "fixed"] = "mean_abs"
    value: float = 1.0
    granularity: Granularity = "layer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale == "fixed" and not self.value > 0:
            raise OptionError(f"value={self.value} must be positive: the step that a sign stands for")

    @property
    def contractive(self) -> bool:
        """A fixed scale can overshoot a small vector."""
        return self.scale == "mean_abs"

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """One bit an entry (1 for x >= 0), and the scales."""
        fields = {"signs": Field((x >= 0).to(torch.uint8), Unsigned(1))}
        if self.scale == "mean_abs":
            means = [part.abs().mean(1) for part in x.split(block_sizes(self.granularity, common), dim=1)]
            fields["scales"] = Field(torch.stack(means, 1), Float())
        return Payload(fields, paper_bits=common.dim)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """a * sign, the scale of each tensor repeated over its entries."""
        value = self.value if self.scale == "fixed" else None
        return signs_times_scales(payload, value, self.granularity, common)
