"""Floats of four bits (E3M0): a sign, three bits of exponent, no mantissa; Streaming DiLoCo's outer gradients.

A. Douillard et al., "Streaming DiLoCo with overlapping communication: towards a distributed free lunch",
arXiv:2501.18512. The paper says neither scale nor rounding nor whether there is a zero; a fixed exponent bias without a
scale would round small updates to zeros. Here the scale s = max |x| of a parameter tensor is sent, and the values are
0 and +-s, s/2, ..., s/64. Rounding is to the nearest (arithmetic midpoints, ties up; the largest entry is exact, so
that a message only shrinks what is left), or stochastic between neighbours (unbiased). Its error is that of about 3
bits of EDEN whatever the distribution of entries: 0.038 of ||x||^2 to the nearest, 0.082 stochastic.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.quantisers.block_scales import Granularity, block_norms, block_sizes, largest_block, multiply_
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float, Unsigned

LEVELS = 7
"""Magnitudes above 0: s 2^(e - 7) for e = 1, ..., 7."""
NUM_CODES = 2 * LEVELS + 1


@dataclass(frozen=True)
class FP4(Codec):
    """Sends +-e + 7, four bits each, and the scales; contractive, or unbiased with `rounding=stochastic`."""

    rounding: Literal["nearest", "stochastic"] = "nearest"
    granularity: Granularity = "layer"

    @property
    def unbiased(self) -> bool:
        return self.rounding == "stochastic"

    @property
    def contractive(self) -> bool:
        return self.rounding == "nearest"

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float:
        """1/8 of what is above s/64, and s^2 / 128^2 for each entry below, in the largest block of m entries."""
        return 1 / 8 + (largest_block(self.granularity, layers) - 1) / 128**2

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The signed exponents + 7, and the scales."""
        sizes = block_sizes(self.granularity, common)
        scales = block_norms(x, sizes, float("inf"))
        parts = zip(x.abs().split(sizes, dim=1), scales.unbind(1), strict=True)
        ratio = torch.cat([(part / scale[:, None]).nan_to_num_(0.0) for part, scale in parts], 1)
        if self.rounding == "nearest":
            exponent = torch.bucketize(ratio, _midpoints(x), right=True)
        else:
            exponent = torch.bucketize(ratio, _values(x)[1:], right=True)
            lower, upper = _values(x)[exponent], _values(x)[(exponent + 1).clamp_(max=LEVELS)]
            share = (ratio - lower) / (upper - lower).clamp(min=2.0**-LEVELS)
            exponent = exponent + (sender_key.uniform(common.ids, common.dim) < share)
        codes = torch.where(x < 0, LEVELS - exponent, LEVELS + exponent).to(torch.uint8)
        return Payload(
            {"codes": Field(codes, Unsigned(4, NUM_CODES)), "scales": Field(scales, Float())}, paper_bits=4 * common.dim
        )

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """+-s 2^(e - 7), and 0."""
        sizes = block_sizes(self.granularity, common)
        codes, scales = payload.expect(codes=common.dim, scales=len(sizes))
        values = _values(scales)
        table = torch.cat((-values[1:].flip(0), values))
        return multiply_(table[codes.to(torch.int64)], scales, sizes)


def _values(like: Tensor) -> Tensor:
    """[8] the magnitudes in units of s, from 0 to 1, on the device of `like`."""
    powers = torch.arange(LEVELS + 1, dtype=torch.float32, device=like.device)
    return torch.exp2(powers - LEVELS).masked_fill_(powers == 0, 0.0)


def _midpoints(like: Tensor) -> Tensor:
    """[7] between neighbours of `_values`."""
    values = _values(like)
    return (values[1:] + values[:-1]) / 2
