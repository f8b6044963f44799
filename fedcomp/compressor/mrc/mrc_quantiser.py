"""Quantised updates whose last bit is left to minimal random coding: BiCompFL's Q_s.

M. Egger et al., "BiCompFL", 2025 (arXiv:2502.00206), section 5 (CFL). What travels beside the indices of the random
bits (compressor/mrc/quantiser.py) is a norm of 32 bits, a sign an entry and the levels in Elias' code: more than one
bit an entry, which the paper does not count. It is a device of the theory, whose contraction needs s >= sqrt(2 d); with
fewer levels an error memory would grow without end, and is refused.

Shape legend: M senders, D entries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcomp.compressor.mrc import MRC
from fedcomp.compressor.mrc.coded import Coded
from fedcomp.compressor.mrc.quantiser import Quantised, check_levels
from fedcomp.compressor.mrc.thresholds import TYPES, quantised
from fedcomp.core.validate import check_choice
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Unsigned, bits_for

PRIORS = ("half", "mean")


@dataclass(frozen=True, kw_only=True)
class MRCQuantiser(Coded):
    """Sends norm, signs, levels and coded last bits; nearly unbiased while blocks stay below capacity.

    Attributes:
        levels: s.
        prior: half, 1/2 for every bit; mean, the mean of the message's posteriors, sent as a threshold.
    """

    levels: int = 64
    prior: str = "half"

    def __post_init__(self) -> None:
        check_levels("compressor.levels", self.levels)
        check_choice("compressor.prior", self.prior, PRIORS)
        super().__post_init__()

    def check_error_feedback(self, dim: int) -> None:
        """Raise ValueError unless s >= sqrt(2 d): then the error is at most d / (2 s^2) <= 1/4 of ||x||^2."""
        if self.levels**2 < 2 * dim:
            raise ValueError(
                f"compressor.levels={self.levels} are too few for an error memory: of {dim} entries MRCQuantiser can "
                "leave out more than it sends, and the memory would grow without end; use compressor.levels="
                f"{math.isqrt(2 * dim - 1) + 1} or more, the square root of twice the entries, or nothing that "
                "remembers (feedback=none)"
            )

    @property
    def codec(self) -> MRC:
        """The code of the last bits; priors of their own have no candidates in common."""
        return replace(super().codec, candidates="per_client") if self.prior == "mean" else super().codec

    def encode(self, x: Tensor, common: SharedKnowledge, private_key: Key) -> Payload:
        """Norm, signs and levels, the prior, and the indices of the last bits."""
        parts, posterior = Quantised.of(x, self.levels)
        fields = parts.fields
        if self.prior == "mean":
            mean = quantised(posterior.mean(1, keepdim=True), self.bits, self.codec.clamp)
            fields["prior"] = Field(mean.to(torch.int64), Unsigned(self.bits))
        coded = self.codec.encode(posterior, self._known(fields, common), private_key)
        indices = self.codec.layout(common.dim)["indices"]
        return Payload({**fields, **coded.fields}, paper_bits=indices * bits_for(self.num_candidates))

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """||x|| sign (tau + bit) / s, with the mean of the decoded bits."""
        layout = {"norm": 1, "signs": common.dim, "tau": common.dim}
        if self.prior == "mean":
            layout["prior"] = 1
        payload.expect(**layout, **self.codec.layout(common.dim))
        parts = Quantised.received(payload, self.levels, common.dim)
        coded = Payload({"indices": payload.fields["indices"]})
        return parts.values(self.codec.decode(coded, self._known(payload.fields, common)))

    def _known(self, fields: Mapping[str, Field], common: SharedKnowledge) -> SharedKnowledge:
        if self.prior == "half":
            side = torch.full((1, common.dim), 1 << (self.bits - 1), device=common.ids.device)
        else:
            side = fields["prior"].data.expand(-1, common.dim)
        return replace(common, side_information=side.to(TYPES[self.bits]))
