"""Random projection: a vector as its inner products with L random vectors, which both ends draw from a seed.

The messages of FedScalar, arXiv:2410.02260 (2024), algorithm 1 lines 16 and 9: r = <x, v>, decoded to r v; with L > 1
our extension. E[v v^T] = I makes it unbiased, at a mean squared error of (D + 1) ||x||^2 for Gaussian v and (D - 1)
||x||^2 for Rademacher v and the sphere, divided by L for L independent vectors; (D / L - 1) ||x||^2 for orthonormal
ones, which are exact at L = D. The paper broadcasts v itself; here a seed is sent, or known for nothing.

Shape legend: M senders, D entries, L projections.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.projections.directions import Directions, Distribution, Independent, Orthonormal, Source
from fedcomp.compressor.seed import SeedCost, seed_field, seed_layout, shared_source
from fedcomp.core.ranges import Whole
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float

Vector = Literal["per_agent", "shared"]
DirectionKind = Literal["independent", "orthonormal"]


@dataclass(frozen=True)
class Projection(Codec):
    """Sends L float32 scalars; unbiased, and noisier than x is long unless L is near D.

    Attributes:
        directions: orthonormal: L <= D of them, a uniformly random subspace, whatever `distribution`.
        seed_cost: of per_agent vectors. A shared seed is never sent up: it is `SharedKnowledge.seed` or follows from
            the message's name.
    """

    vector: Vector = "per_agent"
    distribution: Distribution = "rademacher"
    num_projections: Annotated[int, Whole()] = 1
    directions: DirectionKind = "independent"
    seed_cost: SeedCost = "sent"
    unbiased = True

    def check_dim(self, dim: int) -> None:
        """Raise ValueError if there are not as many orthonormal directions as asked for."""
        if self.directions == "orthonormal" and self.num_projections > dim:
            raise OptionError(
                f"num_projections={self.num_projections}: vectors of {dim} entries have at most {dim} "
                "orthonormal directions; ask for fewer, or take directions=independent"
            )

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """The seed, if it is sent, and the scalars; the paper counts the scalars alone."""
        self.check_dim(common.dim)
        seed = seed_field(self.seed_cost, common, sender_key) if self._sends_seed(common) else {}
        scalars = self._directions.project(x, self._source(Payload(seed), common)).to(torch.float32)
        return Payload({**seed, "scalars": Field(scalars, Float())}, paper_bits=32 * self.num_projections)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """(1/L) sum_l r_l v_l, or (D/L) Q^T r for orthonormal directions."""
        scalars = self._scalars(payload, common)
        out = scalars.new_empty(scalars.shape[0], common.dim)
        for part, entries in self._blocks(scalars, payload, common):
            out[:, part] = entries
        return out

    def weighted(self, payload: Payload, weight: Tensor) -> Payload:
        """Messages whose plain sum is the sum with `weight` [M]: scalars w_i r_i; of a shared vector a single message.

        Idempotent: with weights of 1 it gives its own result back, bit for bit.
        """
        scalars = payload.fields["scalars"].data
        if self.vector == "shared":
            scaled = (weight.to(torch.float64) @ scalars.to(torch.float64)).to(torch.float32)[None]
        else:
            scaled = weight[:, None] * scalars
        return Payload({**payload.fields, "scalars": Field(scaled, Float())}, payload.paper_bits)

    def weighted_sum(self, payload: Payload, common: SharedKnowledge, weight: Tensor) -> Tensor:
        """The sum of `weighted` messages, block by block: the decoded rows never exist side by side."""
        scalars = self._scalars(self.weighted(payload, weight), common)
        out = scalars.new_zeros(common.dim)
        for part, entries in self._blocks(scalars, payload, common):
            out[part] = entries.sum(0)
        return out

    def _sends_seed(self, common: SharedKnowledge) -> bool:
        return self.seed_cost == "sent" and self.vector == "per_agent" and common.seed is None

    def _scalars(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, L] what was received."""
        layout = seed_layout("sent") if self._sends_seed(common) else {}
        return payload.expect(**layout, scalars=self.num_projections)[-1]

    @property
    def _directions(self) -> Directions:
        if self.directions == "orthonormal":
            return Orthonormal(self.num_projections)
        return Independent(self.distribution, self.num_projections)

    def _blocks(self, scalars: Tensor, payload: Payload, common: SharedKnowledge) -> Iterator[tuple[slice, Tensor]]:
        return self._directions.blocks(scalars.to(torch.float64), self._source(payload, common), common.dim)

    def _source(self, payload: Payload, common: SharedKnowledge) -> Source:
        key, ids = shared_source(payload, common)
        if self.vector == "shared" and common.seed is None:
            ids = ids.new_zeros(1)
        return Source(key, ids)
