"""Stochastic signs by minimal random coding: log2(n_IS) bits for a block of signs.

    q_e = 1 / (1 + exp(-x_e / K)),   prior 1/2,   sign = 2 bit - 1

M. Egger et al., "BiCompFL", 2025 (arXiv:2502.00206), section 5 (CFL). The paper codes single elements, at 8 bits per
entry; here blocks are coded. K is never sent, and the paper gives no value for it. `mean_abs`, the mean of |x|, makes
blocks of 256 entries diverge by 25 to 30 nats; `block_max`, KLMS's max |x| / 20 of each block, by up to 177. Both are
far above the capacity ln n_IS, so decoded signs follow x only weakly. `capacity` chooses K of each block so that, to
second order, its divergence sum_e (x_e / K)^2 / 8 is ln n_IS.

The paper's server moves by a fixed length along the decoded signs: `value`, which both ends know. With `scale:
mean_abs`, which is not in the paper, a sign is decoded to +- the mean |x| of its message, sent in 32 bits. Few of these
signs are right, so the error is larger than x (1.4 ||x||^2 for Gaussian entries) and an error memory would grow without
bound: it is refused. With `scale: fixed` an entry of a message is at most `value`, so with feedback=error the memory
grows without bound if updates are larger than that. EF21 (algorithm/bicompfl/bicompfl_cfl.py) stays bounded, since its
messages follow the updates.

Shape legend: M senders, D entries.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.compressor.mrc.blocks import Blocks
from fedcomp.compressor.mrc.codec import CodedByMRC
from fedcomp.compressor.mrc.thresholds import TYPES
from fedcomp.core.ranges import Within
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float


@dataclass(frozen=True, kw_only=True)
class MRCSign(CodedByMRC):
    """Sends samples of the signs; biased.

    Attributes:
        K: block_max: a twentieth of each block's largest |x|; capacity: from each block's capacity. value: the paper's
            step of 0.005.
    """

    K: Literal["mean_abs", "block_max", "capacity"] | Annotated[float, Within("(0, inf)", "K itself")] = "mean_abs"
    scale: Literal["fixed", "mean_abs"] = "fixed"
    value: Annotated[float, Within("(0, inf)", "what a sign is decoded to")] = 0.005

    def check_error_feedback(self, dim: int) -> None:
        """Raise ValueError for signs as long as the memory itself."""
        if self.scale == "mean_abs":
            raise OptionError(
                "scale=mean_abs makes no sense with an error memory: MRCSign leaves out more than it sends, "
                "and the memory would grow without bound; use EF21 with scale=fixed "
                "(algorithm=bicompfl_cfl algorithm.ef21=true), or no memory (feedback=none). "
                "With scale=fixed the memory grows without bound too if updates are larger than value"
            )

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """Indices of the samples, and the scale."""
        q = sign_posterior(x, self.K, self.codec.cut(common.dim, x.device), self.num_candidates)
        payload = self.codec.encode(q, self._known(common, x), sender_key)
        if self.scale == "fixed":
            return payload
        scale = Field(x.abs().mean(1, keepdim=True), Float())
        return replace(payload, fields={**payload.fields, "scale": scale})

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """The mean of the decoded signs, scaled."""
        fields = dict(payload.fields)
        scale = None
        if self.scale == "mean_abs":
            sent = Payload({"scale": fields.pop("scale")}) if "scale" in fields else payload
            (scale,) = sent.expect(scale=1)
        counts = self.codec.counts(Payload(fields), self._known(common, common.ids))
        mean = signs(counts, self.repetitions)
        return mean.mul_(self.value if scale is None else scale)

    def _known(self, common: SharedKnowledge, like: Tensor) -> SharedKnowledge:
        return replace(common, side_information=even_prior(common.dim, self.bits, like.device))


KLMS_SHARE = 1 / 20
"""K of `block_max` in units of the block's largest |g|."""


def sign_posterior(g: Tensor, rule: str | float, blocks: Blocks, num_candidates: int = 256) -> Tensor:
    """[M, D] probability q of a positive sign for updates g [M, D]; 1/2 where g is zero."""
    scale = _scale(g, rule, blocks, num_candidates)
    return torch.sigmoid(torch.where(g == 0, 0.0, g / scale))


def signs(counts: Tensor, repetitions: int) -> Tensor:
    """float32 mean of R decoded signs, (2 c - R) / R, from counts c of ones."""
    return (2 * counts - repetitions).to(torch.float32) / repetitions


def even_prior(dim: int, bits: int, device: torch.device | str = "cpu") -> Tensor:
    """[1, D] thresholds of the prior 1/2."""
    return torch.full((1, dim), 1 << (bits - 1), dtype=TYPES[bits], device=device)


def _scale(g: Tensor, rule: str | float, blocks: Blocks, num_candidates: int) -> Tensor | float:
    """K, [M, 1] or [M, D]."""
    if rule == "mean_abs":
        return g.abs().mean(1, keepdim=True)
    if rule == "block_max":
        owner = blocks.owner().expand(g.shape)
        largest = g.new_zeros(len(g), blocks.num).scatter_reduce(1, owner, g.abs(), "amax")
        return largest.gather(1, owner) * KLMS_SHARE
    if rule == "capacity":
        capacity = 8 * math.log(max(num_candidates, 2))
        return (blocks.sums(g.square()) / capacity).sqrt().to(g.dtype).gather(1, blocks.owner().expand(g.shape))
    return float(rule)
