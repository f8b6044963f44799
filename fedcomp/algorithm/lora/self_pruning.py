"""HetLoRA's self-pruning: a client gives up components whose size falls while it trains against them.

Y. J. Cho et al., EMNLP 2024 (arXiv:2401.06432). Of a matrix at rank r a client may give up the components behind the
first q = max(1, floor(gamma r)): A' [r - q, i] and B' [o, r - q]. It trains with

    loss + penalty sum ||A'||_F ||B'||_F    over its adapted matrices

and goes on with rank q where ||A'||_F ||B'||_F is smaller after its training than before. What it sends up begins with
its new ranks, ceil(log2(r_max + 1)) bits a matrix. The paper's full text was not at hand: rule and norm are recalled.

Shape legend: M clients of a cohort or chunk, D parameters, K adapted matrices.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Context
from fedcomp.algorithm.lora.components import Components
from fedcomp.client import Batch, Gradient, Hook, LocalData, Reads
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Unsigned, bits_for


@dataclass(frozen=True)
class SelfPruning:
    """Ranks that shrink by the factor gamma.

    Attributes:
        components: of the adapters. gamma: share of components that is kept. penalty: weight of the others' size.
    """

    components: Components
    gamma: float
    penalty: float

    def fewer(self, ranks: Tensor) -> Tensor:
        """[M, K] the ranks q."""
        return (self.gamma * ranks).floor().long().clamp(min=1)

    def hook(self, data: LocalData, ranks: Tensor, key: Key) -> Hook:
        """The plain gradient with that of the penalty, for clients of these ranks [M, K]."""

        def gradient(theta: Tensor, batch: Batch, reads: Reads) -> Gradient:
            plain = data.gradient(theta, batch, reads.step)
            factors = self.components.layout.factors(theta * reads.rows[0][: theta.shape[0]])
            grads = [(a * _ratio(b, a), b * _ratio(a, b)) for a, b in factors]
            added = self.components.layout.put(torch.zeros_like(theta), grads)
            return Gradient(plain.grad + self.penalty * added, plain.loss, plain.stats)

        return Hook(gradient, ("self-pruning", self.gamma, self.penalty), (self._behind(ranks),), (), key)

    def send_up(self, start: Tensor, end: Tensor, ranks: Tensor, ctx: Context) -> Tensor:
        """The cohort sends its ranks [M, K] after training from start to end [M, D]; as received."""
        behind, layout = self._behind(ranks), self.components.layout
        before, after = (
            torch.cat([_length(a) * _length(b) for a, b in layout.factors(rows * behind)], 1)[:, :, 0]
            for rows in (start, end)
        )
        own = torch.where(after < before, self.fewer(ranks), ranks)
        limit = max(one.rank for one in layout.matrices) + 1
        payload = Payload({"ranks": Field(own, Unsigned(bits_for(limit), limit))})
        (received,) = ctx.link.up(payload).expect(ranks=own.shape[1])
        return received

    def _behind(self, ranks: Tensor) -> Tensor:
        """[M, D] whether a client of these ranks [M, K] may give the entry up."""
        return self.components.mask(ranks) & ~self.components.mask(self.fewer(ranks))


def _length(factor: Tensor) -> Tensor:
    """[M, 1, 1] Frobenius norms of a factor [M, ...]."""
    return torch.linalg.vector_norm(factor, dim=(1, 2), keepdim=True)


def _ratio(other: Tensor, own: Tensor) -> Tensor:
    """[M, 1, 1] ||other|| / ||own||, 0 where `own` is 0: times `own`, the gradient of the product of both norms."""
    length = _length(own)
    return torch.where(length > 0, _length(other) / length, 0.0)
