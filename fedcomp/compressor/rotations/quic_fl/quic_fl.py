"""QUIC-FL: codes of the rotated vector that are unbiased for every vector, and one inverse rotation for all senders.

R. Ben Basat, S. Vargaftik, A. Portnoy, G. Einziger, Y. Ben-Itzhak, M. Mitzenmacher, "Accelerating federated learning
with quick distributed mean estimation", ICML 2024 (arXiv:2205.13341): one rotation R for all senders of a round,
y = R x sqrt(D) / ||x||; entries |y| > T are sent exactly, with their places. For the others both ends draw h of l bits,
the sender chooses a code X (`tables.py`), and the server decodes r[h, X], whose mean is y for every |y| <= T. So the
mean is x for every x and every rotation, of sparse vectors too, where EDEN's unbiased scale is not. The server adds
up in rotated coordinates and rotates back once.

Here nothing is padded, and each piece of the rotation has its own norm, as EDEN's. The rotation is drawn from the run's
names, which all have, so its seed is not sent; h is the sender's own. Errors of senders are independent given R.

Shape legend: M senders, D entries, P pieces, c entries of a piece, X codes.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.rotations.quic_fl.tables import SHARED_BITS, THRESHOLD, table
from fedcomp.compressor.rotations.rotation import Rotation
from fedcomp.compressor.seed import SeedCost, seed_field, seed_layout, shared_source
from fedcomp.compressor.sparsifiers.sparse_indices import compact
from fedcomp.core.ranges import Whole
from fedcomp.core.rows import scatter_distinct_
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Ascending, FiniteFloat, Unsigned

ROUNDING = 1e-6
"""Rounding of y by its sender: |y| of an exact entry may be less than T by this share, and sum y^2 more than c."""


@dataclass(frozen=True)
class QuicFL(Codec):
    """Sends a code for each entry of the rotated vector, b = `bits` bits, and the largest entries as they are."""

    bits: Annotated[Literal[1, 2, 3, 4], "QUIC-FL has tables for these"] = 1
    rotations: Annotated[int, Whole()] = 1
    seed_cost: SeedCost = "sent"
    unbiased = True

    def most_exact(self, dim: int) -> int:
        """The most entries |y| > T that there can be: sum y^2 = c in each piece, so c / T^2 of them."""
        return sum(int(size / THRESHOLD**2 * (1 + ROUNDING)) for size in Rotation(dim).pieces)

    def expected_error(self, x: Tensor) -> Tensor:
        """[M] float64 the table's mean variance times ||x||^2: of long, dense vectors."""
        return table(self.bits).mean_variance * x.double().square().sum(1)

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """Codes [M, D], norms [M, P], and places and values of the exact entries; these have a code too, of +-T."""
        seed = seed_field(self.seed_cost, common, sender_key)
        rotation = Rotation(common.dim, self.rotations)
        y = rotation.forward(x, common.key, torch.zeros_like(common.ids))
        norms = []
        for part in y.split(rotation.pieces, 1):
            norms.append(torch.linalg.vector_norm(part, dim=1))
            scale = part.shape[1] ** 0.5 / norms[-1]
            part.mul_(torch.where(norms[-1] > 0, scale, 0.0)[:, None])
        h = self._shared(Payload(seed), common)
        coin = sender_key.fold_in("coin").uniform(common.ids, common.dim)
        exact = y.abs() > THRESHOLD
        count, most = exact.sum(1), self.most_exact(common.dim)
        every = torch.arange(common.dim, device=x.device).expand(y.shape)
        fields = {
            "codes": Field(self._choose(y.clamp(-THRESHOLD, THRESHOLD), h, coin), Unsigned(self.bits)),
            "norms": Field(torch.stack(norms, 1), FiniteFloat(signed=False)),
            "exact_places": Field(compact(every, exact)[:, :most], Ascending(common.dim), count),
            "exact_values": Field(compact(y, exact)[:, :most], _exact_values(), count),
        }
        return Payload(seed | fields, paper_bits=round((self.bits + 64 / 512) * common.dim))

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """R^T of the rows in rotated coordinates."""
        rows = self._rotated(payload, common)
        return Rotation(common.dim, self.rotations).inverse(rows, common.key, torch.zeros_like(common.ids))

    def weighted_sum(self, payload: Payload, common: SharedKnowledge, weight: Tensor) -> Tensor:
        """[D] R^T of the sum in rotated coordinates: one rotation back for all senders."""
        total = (weight @ self._rotated(payload, common))[None]
        return Rotation(common.dim, self.rotations).inverse(total, common.key, common.ids.new_zeros(1))[0]

    def _rotated(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] estimates of R x."""
        rotation, most = Rotation(common.dim, self.rotations), self.most_exact(common.dim)
        *_, codes, norms, places, values = payload.expect(
            **seed_layout(self.seed_cost),
            codes=common.dim,
            norms=len(rotation.pieces),
            exact_places=most,
            exact_values=most,
        )
        r = _on(table(self.bits).values.astype(np.float32), codes.device)
        at = (self._shared(payload, common) << self.bits) | codes
        y = r.flatten().index_select(0, at.flatten()).view(at.shape)
        count = payload.fields["exact_places"].count
        assert count is not None
        beyond = torch.arange(most, device=y.device) >= count[:, None]
        padded = torch.nn.functional.pad(y, (0, 1))  # one place more, for the entries that were not sent
        y = scatter_distinct_(padded, places.masked_fill(beyond, common.dim), values)[:, : common.dim].contiguous()
        for part, norm in zip(y.split(rotation.pieces, 1), norms.unbind(1)):
            part.mul_((norm / part.shape[1] ** 0.5)[:, None])
        return y

    def _shared(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """[M, D] int64 h, uniform on [0, 2^l)."""
        key, ids = shared_source(payload, common)
        return key.fold_in("h").bits(ids, common.dim) >> (32 - SHARED_BITS[self.bits])

    def _choose(self, y: Tensor, h: Tensor, coin: Tensor) -> Tensor:
        """[M, D] uint8 codes of |y| <= T."""
        parts = table(self.bits)
        means = _on(parts.means.astype(np.float32), y.device)
        j = (torch.bucketize(y, means, out_int32=True, right=True) - 1).clamp_(0, len(parts.raised) - 1)
        low = means[:-1].index_select(0, j.flatten()).view(j.shape)
        step = means.diff().index_select(0, j.flatten()).view(j.shape)
        raised = _on(parts.raised, y.device).index_select(0, j.flatten()).view(j.shape)
        base = _on(parts.codes.astype(np.uint8), y.device).flatten()
        codes = base.index_select(0, (j * parts.values.shape[0] + h).flatten()).view(j.shape)
        return codes + ((h == raised) & (coin * step < y - low)).to(torch.uint8)


def _on(values: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(values).to(device, non_blocking=True)


def _exact_values() -> FiniteFloat:
    return FiniteFloat(least=THRESHOLD * (1 - ROUNDING))
