"""Stochastic sign, coded by minimal random coding: an update's signs in 1/32 of a bit each.

The compressor of BiCompFL-GR-CFL, arXiv:2502.00206, for use in any algorithm: each entry's sign is + with probability
1 / (1 + exp(-u / K)), and blocks of them are coded against the prior 1/2 (`sign_posterior.py` has the rules for K,
which is not sent). The paper's server applies decoded signs with a fixed step; here a sign is decoded to a fixed value
that both ends know. Biased: it decodes no sizes, nor all of the posterior's signs above a block's capacity.

Shape legend: M senders, D entries, B blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedcomp.compressor.check import check_positive
from fedcomp.compressor.mrc.codec import MRC
from fedcomp.compressor.mrc.sign_posterior import check_rule, even_prior, sign_posterior, signs
from fedcomp.keys import Key
from fedcomp.wire import Common, Payload


@dataclass(frozen=True)
class MRCSign:
    """Sends `repetitions` B ceil(log2 n_IS) bits for D signs.

    Attributes:
        value: what a sign is decoded to, in units of u.
        K: mean_abs, block_max, capacity or a number: see `sign_posterior.py`.
        num_candidates: n_IS. repetitions: n_s, whose mean is decoded. block: entries a block.
        candidates: shared or per_client; bits: 8, 16 or 32 of a uniform number.
    """

    value: float = 0.005
    K: str | float = "mean_abs"
    num_candidates: int = 256
    repetitions: int = 1
    block: int = 256
    candidates: str = "per_client"
    bits: int = 8
    unbiased: bool = False
    contractive: bool = False
    faithful: bool = False

    def __post_init__(self) -> None:
        check_positive("compressor.value", self.value, "what a sign is decoded to, in units of an update's entries")
        check_rule("compressor.K", self.K)
        try:
            assert self._codec
        except ValueError as error:
            raise ValueError(f"compressor.{error}") from None

    def encode(self, x: Tensor, common: Common, coin: Key) -> Payload:
        """The indices; the paper counts the same."""
        blocks = self._codec.cut(common.dim, x.device)
        posterior = sign_posterior(x, self.K, blocks, self.num_candidates)
        payload = self._codec.encode(posterior, self._known(common, x), coin)
        return replace(payload, paper_bits=self._codec.coding.fixed_bits(self.repetitions * blocks.num))

    def decode(self, payload: Payload, common: Common) -> Tensor:
        """`value` times the mean of the decoded signs."""
        counts = self._codec.counts(payload, self._known(common, common.ids))
        return signs(counts, self.repetitions).mul_(self.value)

    @property
    def _codec(self) -> MRC:
        return MRC(self.num_candidates, self.repetitions, self.block, self.candidates, self.bits)

    def _known(self, common: Common, like: Tensor) -> Common:
        return replace(common, side=even_prior(common.dim, self.bits, like.device))
