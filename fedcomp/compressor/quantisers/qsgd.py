"""QSGD: stochastic rounding to s levels of the norm. FedPAQ sends the difference after local steps through it.

D. Alistarh et al., "QSGD: communication-efficient SGD via gradient quantization and encoding", NeurIPS 2017, section
3.1; A. Reisizadeh et al., "FedPAQ", AISTATS 2020. With r = s u / ||u||_2, the level is floor(r) or floor(r) + 1, the
latter with probability f = r - floor(r), and it is decoded to ||u|| level / s: unbiased, and E||C(u) - u||^2 =
(||u|| / s)^2 sum f (1 - f) <= min(d / s^2, sqrt(d) / s) ||u||^2. QSGD bounds the length of its Elias code in
expectation and FedPAQ counts fixed widths; here the levels are written in one of

    fixed   ceil(log2(2 s + 1)) bits each
    packed  digits of base 2 s + 1, as many as fit into a few bytes (s = 1: five a byte)
    elias   the paper's code: distances between levels that are not zero, signs, magnitudes
    auto    elias or the shorter of the other two, row by row; one bit says which

Shape legend: D entries.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.quantisers.block_scales import (
    MOST_LEVELS,
    Granularity,
    block_norms,
    block_sizes,
    from_levels,
    largest_block,
    to_levels,
)
from fedcomp.core.ranges import Whole
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Coding, Digits, Float, RunLength, Shortest, Unsigned, bits_for


@dataclass(frozen=True)
class QSGD(Codec):
    """Sends levels in [-s, s], s = `levels`, and the norms; unbiased."""

    levels: Annotated[int, Whole(meaning="the levels above zero; float32 has no more", most=MOST_LEVELS)] = 7
    granularity: Granularity = "layer"
    coding: Literal["auto", "fixed", "packed", "elias"] = "auto"
    unbiased = True

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float:
        """min(m / s^2, sqrt(m) / s) of the largest block of m entries."""
        size = largest_block(self.granularity, layers)
        return min(size / self.levels**2, math.sqrt(size) / self.levels)

    def level_coding(self, dim: int) -> Coding:
        """How the levels of a vector of `dim` entries are written."""
        num = 2 * self.levels + 1
        fixed, packed, elias = Unsigned(bits_for(num), num), Digits(num), RunLength(self.levels)
        dense: Coding = packed if packed.fixed_bits(dim) < fixed.fixed_bits(dim) else fixed
        codings: dict[str, Coding] = {"fixed": fixed, "packed": packed, "elias": elias}
        return Shortest((dense, elias)) if self.coding == "auto" else codings[self.coding]

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """level + s of each entry, and the norms."""
        sizes = block_sizes(self.granularity, common)
        norms = block_norms(x, sizes, 2)
        levels = to_levels(x, norms, sizes, self.levels, sender_key.uniform(common.ids, common.dim))
        return Payload({"levels": Field(levels, self.level_coding(common.dim)), "norms": Field(norms, Float())})

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """||u|| level / s."""
        sizes = block_sizes(self.granularity, common)
        levels, norms = payload.expect(levels=common.dim, norms=len(sizes))
        return from_levels(levels, norms, sizes, self.levels)
