"""Induced compressor: a biased codec for the bulk, an unbiased one for what it leaves out; together unbiased.

S. Horváth, P. Richtárik, "A better alternative to error feedback for communication-efficient distributed learning",
ICLR 2021: C(x) = C1(x) + C2(x - C1(x)), here with C1 = Top-k1, C2 = Rand-k2, k1 = k2 = floor(k / 2), as in the
experiments that compare it with Rand-k-Spatial. With `restricted`, C2 draws only among the entries that C1 left out
(the receiver knows them, having decoded C1): the error falls from (D / k2 - 1) to ((D - k1) / k2 - 1) ||x - C1(x)||^2.

Shape legend: M senders, D entries, k1 and k2 entries sent.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.seed import SeedCost, seed_field, seed_layout, shared_source
from fedcomp.compressor.sparsifiers.num_kept import Sparsifier
from fedcomp.compressor.sparsifiers.sparse_indices import IndexCode, index_code, index_field, index_layout, read_indices
from fedcomp.compressor.sparsifiers.topk import stable_topk
from fedcomp.core.rows import add_distinct_, scatter_distinct_
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float


@dataclass(frozen=True)
class Induced(Sparsifier):
    """Sends the k1 largest entries, with their indices, and k2 random ones of the rest, from a seed.

    A fraction makes k = max(2, round(fraction * D)). Both parts send floor(k / 2), so that of an odd k one entry fewer
    is sent.
    """

    restricted: bool = False
    positions: IndexCode = "auto"
    seed_cost: SeedCost = "sent"
    unbiased = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.k < 2:
            raise OptionError(f"k={self.k} must be at least 2: half of it are the largest, half random")

    def parts(self, dim: int) -> tuple[int, int]:
        """(k1, k2), both floor(k / 2); of a vector of one entry only the random part is left."""
        half = max(2, self.num_sent(dim)) // 2
        return (half, half) if dim > 1 else (0, 1)

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """Values and indices of the largest, then the seed and the values of the random ones."""
        k1, k2 = self.parts(common.dim)
        top = stable_topk(x.abs(), k1)
        fields = {"largest": Field(x.gather(1, top), Float())}
        fields |= index_field(self._code(common.dim), top, common.dim)
        fields |= seed_field(self.seed_cost, common, sender_key)
        drawn = self._drawn(Payload(fields), top, common)
        rest = x.scatter(1, top, 0.0)
        return Payload(fields | {"drawn": Field(rest.gather(1, drawn), Float())}, paper_bits=32 * (k1 + k2))

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """Both parts, the random one scaled up."""
        k1, k2 = self.parts(common.dim)
        code = self._code(common.dim)
        layout = {"largest": k1, **index_layout(code, k1, common.dim), **seed_layout(self.seed_cost), "drawn": k2}
        top, sent, *_, values = payload.expect(**layout)
        largest = read_indices(code, sent, k1)
        scale = ((common.dim - k1) if self.restricted else common.dim) / k2
        out = torch.zeros(values.shape[0], common.dim, device=values.device)
        scatter_distinct_(out, self._drawn(payload, largest, common), values * scale)
        return add_distinct_(out, largest, top)

    def expected_error(self, x: Tensor) -> Tensor:
        """[M] float64 E||C(x) - x||^2 of each row: (n / k2 - 1) ||x - C1(x)||^2, n = D, or D - k1 if restricted."""
        dim = x.shape[1]
        k1, k2 = self.parts(dim)
        squares = x.double().square()
        rest = squares.sum(1) - squares.topk(k1, dim=1).values.sum(1)
        return rest.clamp(min=0) * ((dim - (k1 if self.restricted else 0)) / k2 - 1)

    def _drawn(self, payload: Payload, largest: Tensor, common: SharedKnowledge) -> Tensor:
        """[M, k2] indices of the random part."""
        key, ids = shared_source(payload, common)
        k1, k2 = self.parts(common.dim)
        if not self.restricted:
            return key.fold_in("places").choice(ids, k2, common.dim)
        rank = key.fold_in("places").choice(ids, k2, common.dim - k1)
        # The r-th entry that is not among the largest t_0 < t_1 < ... lies r + #{i: t_i - i <= r} from the start.
        free_before = largest - torch.arange(k1, device=largest.device)
        return rank + torch.searchsorted(free_before, rank, right=True)

    def _code(self, dim: int) -> str:
        return index_code(self.positions, self.parts(dim)[0], dim)
