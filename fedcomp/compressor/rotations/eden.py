"""EDEN: a few bits an entry of the rotated vector, whole or not, and a scale.

S. Vargaftik, R. Ben Basat, A. Portnoy, G. Mendelson, Y. Ben-Itzhak, M. Mitzenmacher, "EDEN: communication-efficient and
robust distributed mean estimation for federated learning", ICML 2022: z = R x for a random rotation R; entries of
z sqrt(D) / ||z|| are close to standard normal and are rounded by its Lloyd-Max quantiser Q; send Q's codes and
a = ||z||^2 / <Q, z>; decode R^T (a Q). With 1 bit it is DRIVE with the unbiased scale, bit for bit.

Bits that are no whole number: both ends draw which entries take ceil(b) bits, the others take floor(b), so that the
mean is b. Below 1 bit that leaves entries with none, which count as Q = 0. (The paper draws each entry by itself, and
below 1 bit samples before it scales by 1/b. Here the number of entries is fixed, so that a message's size is known, and
a makes up for those left out: the error is the same, pi / (2 b) - 1, and <decoded, x> = ||x||^2 in every draw too.)

With scale=norm the same codes are decoded with a = ||z|| / sqrt(D) in Q's own unit, and not with one that is fitted to
them: that is TurboQuant_mse of A. Zandieh, M. Daliri, M. Hadian, V. Mirrokni, arXiv:2504.19874, biased. Its centroids
are those of an entry of a uniformly random unit vector, which are Q's for long vectors; for D < 256 they differ by more
than 1 %, but the entries of a Hadamard rotation have no such density either. The paper counts b D bits and no norm.

R is a randomised Hadamard transform, as in their code, but nothing is padded (`rotation.py`), and normalisation, scale
and choice of entries are by piece. The limits of one rotation are those that `drive.py` states.

Shape legend: M senders, D entries, P pieces.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.compressor.rotations.lloyd_max import lloyd_max
from fedcomp.compressor.rotations.rotated_codec import RotatedCodec, ScaleRule, fit_scale, levels, quantise
from fedcomp.compressor.rotations.rotation import Rotation
from fedcomp.compressor.seed import seed_field, seed_layout, shared_source
from fedcomp.core.ranges import Within
from fedcomp.core.rows import count_along_rows, scatter_distinct_
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float, Unsigned

MOST_BITS = 8


@dataclass(frozen=True)
class Eden(RotatedCodec):
    """Sends codes of the rotated vector's entries, of b = `bits` bits each."""

    bits: Annotated[float, Within(f"(0, {MOST_BITS}]", "bits an entry")] = 1
    scale: ScaleRule = "unbiased"

    @property
    def distortion(self) -> float:
        """D_b; of bits in between, the mean over entries. Those that take no bit are left out: 1."""
        few = math.floor(self.bits)
        without = lloyd_max(few).distortion if few else 1.0
        if few == self.bits:
            return without
        return without + (self.bits - few) * (lloyd_max(few + 1).distortion - without)

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """Codes by their width, and the scales [M, P]."""
        seed = seed_field(self.seed_cost, common, sender_key)
        key, ids = shared_source(Payload(seed), common)
        rotation = Rotation(common.dim, self.rotations)
        codes: dict[int, list[Tensor]] = {}
        scales = []
        for number, z in enumerate(rotation.forward(x, key, ids).split(rotation.pieces, 1)):
            norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
            inverse_std = torch.where(norm > 0, z.shape[1] ** 0.5 / norm, 0.0)
            rounded = torch.zeros_like(z)
            for bits, indices in self._shares(key, ids, number, z.shape[1]):
                chosen = quantise(z if indices is None else z.gather(1, indices), inverse_std, bits)
                codes.setdefault(bits, []).append(chosen)
                own = levels(chosen, bits)
                rounded = own if indices is None else scatter_distinct_(rounded, indices, own)
            scales.append(fit_scale(self.scale, z, rounded))
        fields = {f"codes{bits}": Field(torch.cat(parts, 1), Unsigned(bits)) for bits, parts in codes.items()}
        fields["scales"] = Field(torch.stack(scales, 1), Float())
        return Payload(seed | fields, paper_bits=round(self.bits * common.dim))

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """R^T (a Q)."""
        rotation = Rotation(common.dim, self.rotations)
        *_, scales = payload.expect(**self._layout(rotation))
        key, ids = shared_source(payload, common)
        z = scales.new_zeros(scales.shape[0], common.dim)
        read = dict.fromkeys(payload.fields, 0)
        for number, part in enumerate(z.split(rotation.pieces, 1)):
            for bits, indices in self._shares(key, ids, number, part.shape[1]):
                name, num = f"codes{bits}", part.shape[1] if indices is None else indices.shape[1]
                codes = payload.fields[name].data[:, read[name] : read[name] + num]
                values = levels(codes, bits).mul_(scales[:, number, None])
                _ = part.copy_(values) if indices is None else scatter_distinct_(part, indices, values)
                read[name] += num
        return rotation.inverse(z, key, ids)

    def _layout(self, rotation: Rotation) -> dict[str, int]:
        """Names and numbers of entries of the fields, for `Payload.expect`."""
        few, dim = math.floor(self.bits), sum(rotation.pieces)
        many = 0 if few == self.bits else sum(self._num_more(size) for size in rotation.pieces)
        codes = {f"codes{few + 1}": many} if few != self.bits else {}
        codes |= {f"codes{few}": dim - many} if few else {}
        return seed_layout(self.seed_cost) | codes | {"scales": len(rotation.pieces)}

    def _num_more(self, size: int) -> int:
        """Entries of a piece of `size` that take a bit more than the others."""
        few = math.floor(self.bits)
        num = round((self.bits - few) * size)
        return num if few else max(num, 1)

    def _shares(self, key: Key, ids: Tensor, piece: int, size: int) -> list[tuple[int, Tensor | None]]:
        """(bits, [M, n] indices in a piece of `size` entries that take them; None: all); not those that take none."""
        few = math.floor(self.bits)
        if few == self.bits:
            return [(few, None)]
        many = key.fold_in("more bits", piece).choice(ids, self._num_more(size), size)
        shares: list[tuple[int, Tensor | None]] = [(few + 1, many)]
        return [*shares, (few, _others(many, size))] if few else shares


def _others(indices: Tensor, size: int) -> Tensor:
    """[M, size - n] ascending: the indices below `size` that are not among `indices` [M, n]."""
    num_rows, num = indices.shape
    listed = torch.zeros(num_rows, size, dtype=torch.bool, device=indices.device).scatter_(1, indices, True)
    # Those listed go into a last column, which is dropped.
    rank = torch.where(listed, size - num, count_along_rows(~listed) - 1)
    every = torch.arange(size, device=indices.device).expand(num_rows, size)
    return scatter_distinct_(indices.new_empty(num_rows, size - num + 1), rank, every)[:, :-1]
