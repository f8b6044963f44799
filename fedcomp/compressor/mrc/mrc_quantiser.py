"""Quantised updates whose last, random bit is sent by minimal random coding: BiCompFL's Q_s.

    r_e = s |g_e| / ||g||_2,   tau_e = min(floor(r_e), s - 1),   q_e = r_e - tau_e,
    decoded: ||g|| sign(g_e) (tau_e + bit_e) / s

M. Egger et al., "BiCompFL", 2025 (arXiv:2502.00206), section 5 (CFL). bit_e is one with probability q_e: it is the
sample that minimal random coding sends. The message also has the norm in 32 bits, a sign per entry, and tau_e + 1 in
Elias' omega code (the paper's gamma code has the same lengths up to 3). That is more than one bit per entry, which the
paper does not count: Q_s is meant for the theory. Its contraction needs s >= sqrt(2 d), the default here. With fewer
levels the bits of a block say more than the choice of a candidate can, and what is decoded is too long: of 61,706
normal entries with s = 64 the error is 4.6 ||x||^2. An error memory would grow without bound, so it is refused.

Shape legend: M senders, D entries.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.compressor.mrc import MRC
from fedcomp.compressor.mrc.codec import CodedByMRC
from fedcomp.compressor.mrc.thresholds import TYPES, quantised
from fedcomp.core.ranges import Whole
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Elias, Float, Unsigned, bits_for


@dataclass(frozen=True, kw_only=True)
class MRCQuantiser(CodedByMRC):
    """Sends norm, signs, levels and coded last bits; nearly unbiased with levels of sqrt(2 d) or more.

    Attributes:
        levels: s; None: the least s >= sqrt(2 d). prior: mean: of the message's posteriors, sent as a threshold.
    """

    levels: Annotated[int | None, Whole(meaning="float32 cannot tell more levels apart", most=1 << 23)] = None
    prior: Literal["half", "mean"] = "half"

    def check_error_feedback(self, dim: int) -> None:
        """Raise ValueError unless s >= sqrt(2 d): then the error is at most d / (2 s^2) <= 1/4 of ||x||^2."""
        if self.num_levels(dim) < least_levels(dim):
            raise OptionError(
                f"levels={self.levels} are too few for an error memory: of {dim} entries MRCQuantiser can "
                "leave out more than it sends, and the memory would grow without bound; use levels="
                f"{least_levels(dim)} or more, the square root of twice the entries (levels=null), or no "
                "memory (feedback=none)"
            )

    def num_levels(self, dim: int) -> int:
        """s for `dim` entries."""
        return least_levels(dim) if self.levels is None else self.levels

    @property
    def codec(self) -> MRC:
        """The codec of the last bits; senders with different priors share no candidates."""
        return replace(super().codec, candidates="per_client") if self.prior == "mean" else super().codec

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """Norm, signs and levels, the prior, and the indices of the last bits."""
        parts, posterior = Quantised.of(x, self.num_levels(common.dim))
        fields = parts.fields
        if self.prior == "mean":
            mean = quantised(posterior.mean(1, keepdim=True), self.bits, self.codec.clamp)
            fields["prior"] = Field(mean.to(torch.int64), Unsigned(self.bits))
        coded = self.codec.encode(posterior, self._known(fields, common), sender_key)
        indices = self.codec.layout(common.dim)["indices"]
        return Payload({**fields, **coded.fields}, paper_bits=indices * bits_for(self.num_candidates))

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """||x|| sign (tau + bit) / s, with the mean of the decoded bits."""
        layout = {"norm": 1, "signs": common.dim, "tau": common.dim}
        if self.prior == "mean":
            layout["prior"] = 1
        payload.expect(**layout, **self.codec.layout(common.dim))
        parts = Quantised.received(payload, self.num_levels(common.dim), common.dim)
        coded = Payload({"indices": payload.fields["indices"]})
        return parts.values(self.codec.decode(coded, self._known(payload.fields, common)))

    def _known(self, fields: Mapping[str, Field], common: SharedKnowledge) -> SharedKnowledge:
        if self.prior == "half":
            side = torch.full((1, common.dim), 1 << (self.bits - 1), device=common.ids.device)
        else:
            side = fields["prior"].data.expand(-1, common.dim)
        return replace(common, side_information=side.to(TYPES[self.bits]))


def least_levels(dim: int) -> int:
    """The least s >= sqrt(2 d), 1 or more."""
    return math.isqrt(max(2 * dim - 1, 0)) + 1


@dataclass(frozen=True)
class Quantised:
    """Quantised updates without their last bit.

    Attributes:
        norm: [M, 1] float32 ||g||_2. negative: [M, D] uint8, 1 where g < 0. tau: [M, D] int32 in 0, ..., s - 1.
        levels: s.
    """

    norm: Tensor
    negative: Tensor
    tau: Tensor
    levels: int

    @classmethod
    def of(cls, g: Tensor, levels: int) -> "tuple[Quantised, Tensor]":
        """(updates g [M, D] without the last bit, posterior q [M, D] of that bit)."""
        norm = torch.linalg.vector_norm(g, dim=1, keepdim=True)
        ratio = torch.where(norm > 0, g.abs() / norm, 0.0) * levels
        tau = ratio.floor().clamp_(max=levels - 1)
        posterior = (ratio - tau).clamp_(0.0, 1.0)
        return cls(norm, (g < 0).to(torch.uint8), tau.to(torch.int32), levels), posterior

    @property
    def fields(self) -> dict[str, Field]:
        """The fields of a message besides the indices of the last bits."""
        return {
            "norm": Field(self.norm, Float()),
            "signs": Field(self.negative, Unsigned(1)),
            "tau": Field(self.tau + 1, Elias(self.levels + 1)),
        }

    @classmethod
    def received(cls, payload: Payload, levels: int, dim: int) -> "Quantised":
        """The quantised updates in the `fields` of a message; other fields are ignored."""
        sent = Payload({name: payload.fields[name] for name in ("norm", "signs", "tau") if name in payload.fields})
        norm, negative, tau = sent.expect(norm=1, signs=dim, tau=dim)
        return cls(norm, negative, tau - 1, levels)

    def values(self, bits: Tensor) -> Tensor:
        """[M, D] float32 the decoded updates, for last bits [M, D] or means of samples of them, in [0, 1]."""
        signs = 1 - 2 * self.negative.to(torch.float32)
        return self.norm * signs * (self.tau.to(torch.float32) + bits) / self.levels
