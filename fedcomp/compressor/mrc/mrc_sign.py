"""Stochastic signs by minimal random coding: log2(n_IS) bits for a block of signs.

M. Egger et al., "BiCompFL", 2025 (arXiv:2502.00206), section 5 (CFL): q_e = 1 / (1 + exp(-x_e / K)) is the probability
of a plus, 1/2 its prior. K is never sent, and the paper names none (compressor/mrc/sign_posterior.py). Read as the text
has it, element by element, the code would cost 8 bits an entry; here blocks are coded. The paper's server steps along
decoded signs with a fixed length: `value`, which both ends know. With `scale: mean_abs`, which is no part of the paper,
a sign is decoded to +- the mean |x| of its message, sent in 32 bits. As few of these signs are right, the error is then
larger than x (1.4 ||x||^2 for Gaussian entries), so that an error memory would grow without end: it is refused. A
message of fixed length carries at most `value` an entry, so with feedback=error the memory grows without end wherever
updates are larger than that. EF21 (algorithm/bicompfl_cfl.py) stays bounded: its messages follow the updates.

Shape legend: M senders, D entries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedcomp.compressor.mrc.coded import Coded
from fedcomp.compressor.mrc.sign_posterior import check_rule, even_prior, sign_posterior, signs
from fedcomp.core.validate import check_choice, check_positive
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float

SCALES = ("fixed", "mean_abs")


@dataclass(frozen=True, kw_only=True)
class MRCSign(Coded):
    """Sends samples of the signs; biased.

    Attributes:
        K: mean_abs, the mean of |x|; block_max, a twentieth of each block's largest; capacity, as each block can carry;
            or a positive number, in units of x.
        scale: fixed, signs are decoded to +-`value`; mean_abs, to the mean |x|, which is sent.
        value: in units of x; the paper's step of 0.005.
    """

    K: str | float = "mean_abs"
    scale: str = "fixed"
    value: float = 0.005

    def __post_init__(self) -> None:
        check_rule("compressor.K", self.K)
        check_choice("compressor.scale", self.scale, SCALES)
        check_positive("compressor.value", self.value, "what a sign is decoded to, in units of an update's entries")
        super().__post_init__()

    def check_error_feedback(self, dim: int) -> None:
        """Raise ValueError for signs as long as the memory itself."""
        if self.scale == "mean_abs":
            raise ValueError(
                "compressor.scale=mean_abs makes no sense with an error memory: MRCSign leaves out more than it sends, "
                "and the memory would grow without end; use EF21 with compressor.scale=fixed "
                "(algorithm=bicompfl_cfl algorithm.ef21=true), or nothing that remembers (feedback=none). "
                "feedback=error with scale=fixed grows without end too where updates are larger than compressor.value"
            )

    def encode(self, x: Tensor, common: SharedKnowledge, private_key: Key) -> Payload:
        """Indices of the samples, and the scale."""
        q = sign_posterior(x, self.K, self.codec.cut(common.dim, x.device), self.num_candidates)
        payload = self.codec.encode(q, self._known(common, x), private_key)
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
