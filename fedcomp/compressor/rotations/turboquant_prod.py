"""TurboQuant_prod: b - 1 bits an entry of the rotated vector, and one bit an entry of what they leave out; unbiased.

A. Zandieh, M. Daliri, M. Hadian, V. Mirrokni, "TurboQuant: online vector quantization with near-optimal distortion
rate", arXiv:2504.19874, algorithm 2. With z = R x, z~ its TurboQuant_mse of b - 1 bits (`eden.py`, scale=norm; of no
bits z~ = 0), rho = z - z~ and S a second random matrix, send the codes, q = sign(S rho), ||z|| and ||rho||; decode
R^T (z~ + a ||rho|| S^T q), with a such that a ||rho|| S^T q has the mean rho.

The paper's S has D x D Gaussian entries, a = sqrt(pi/2) / D and the error (pi/2 - 1/D) D_{b-1} ||x||^2 (1.571, 0.571,
0.185, 0.054 for b = 1..4; it prints 0.047 for the last by a rounding). That is impossible for long vectors, and larger
than need be: by default S is another random rotation of the pieces of R, with a = 1 / (c E|u|), u an entry of a
uniformly random unit vector, and the error (pi/2 - 1) D_{b-1} ||x||^2 (0.571, 0.207, 0.067, 0.020). S takes draws of
its own: in R's coordinates rho is not close to normal. EDEN with b bits has the smaller error D_b / (1 - D_b).

Shape legend: M senders, D entries, P pieces, c entries of a piece.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.rotations.lloyd_max import lloyd_max
from fedcomp.compressor.rotations.rotated_codec import fit_scale, levels, plus_minus, quantise
from fedcomp.compressor.rotations.rotation import Rotation
from fedcomp.compressor.seed import SeedCost, seed_field, seed_layout, shared_source
from fedcomp.core.ranges import Whole
from fedcomp.core.validate import OptionError
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float, Unsigned

MOST_BITS = 8
LARGEST_GAUSSIAN = 4096
"""S has the square of this many entries."""


@dataclass(frozen=True)
class TurboQuantProd(Codec):
    """Sends codes of the rotated vector's entries, the signs of what is left, and the lengths of both.

    Attributes:
        bits: b. rotations: of R. residual: the matrix S: rotation, or gaussian (the paper's, for at most 4,096
            entries).
    """

    bits: Annotated[
        int,
        Whole(
            meaning="bits an entry, one of them for what the others leave out (compressor=eden takes fractions)",
            most=MOST_BITS,
        ),
    ] = 2
    residual: Literal["rotation", "gaussian"] = "rotation"
    rotations: Annotated[int, Whole()] = 1
    seed_cost: SeedCost = "sent"
    unbiased = True

    def check_dim(self, dim: int) -> None:
        """Raise ValueError if S would have too many Gaussian entries."""
        if self.residual == "gaussian" and dim > LARGEST_GAUSSIAN:
            raise OptionError(
                f"residual=gaussian needs D^2 draws a message: take residual=rotation for more than "
                f"{LARGEST_GAUSSIAN} entries (D = {dim})"
            )

    def expected_error(self, x: Tensor) -> Tensor:
        """[M] float64 (pi/2 - 1) D_{b-1} ||x||^2, with a Gaussian S (pi/2 - 1/D) D_{b-1} ||x||^2: dense vectors."""
        left = lloyd_max(self.bits - 1).distortion if self.bits > 1 else 1.0
        less = 1.0 if self.residual == "rotation" else 1 / x.shape[1]
        return (math.pi / 2 - less) * left * x.double().square().sum(1)

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """Codes [M, D] of b - 1 bits and the scales [M, P] of z~ (not for b = 1), signs [M, D], ||rho|| [M, P]."""
        seed = seed_field(self.seed_cost, common, sender_key)
        key, ids = shared_source(Payload(seed), common)
        rotation = Rotation(common.dim, self.rotations)
        rho = rotation.forward(x, key, ids)
        fields: dict[str, Field] = {}
        if self.bits > 1:
            scales, codes = [], []
            for part in rho.split(rotation.pieces, 1):
                norm = torch.linalg.vector_norm(part, dim=1, keepdim=True)
                inverse_std = torch.where(norm > 0, part.shape[1] ** 0.5 / norm, 0.0)
                codes.append(quantise(part, inverse_std, self.bits - 1))
                scales.append(fit_scale("norm", part, part))
                part.sub_(levels(codes[-1], self.bits - 1).mul_(scales[-1][:, None]))
            fields["codes"] = Field(torch.cat(codes, 1), Unsigned(self.bits - 1))
            fields["scales"] = Field(torch.stack(scales, 1), Float())
        lengths = [torch.linalg.vector_norm(part, dim=1) for part in rho.split(rotation.pieces, 1)]
        signs = (self._project(rho, key, ids) >= 0).to(torch.uint8)
        fields |= {"signs": Field(signs, Unsigned(1)), "lengths": Field(torch.stack(lengths, 1), Float())}
        return Payload(seed | fields, paper_bits=self.bits * common.dim + 32)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """R^T (z~ + a ||rho|| S^T q)."""
        rotation = Rotation(common.dim, self.rotations)
        num = len(rotation.pieces)
        coarse = {"codes": common.dim, "scales": num} if self.bits > 1 else {}
        received = payload.expect(**seed_layout(self.seed_cost), **coarse, signs=common.dim, lengths=num)
        key, ids = shared_source(payload, common)
        z = self._project_back(plus_minus(received[-2]), key, ids)
        for part, length in zip(z.split(rotation.pieces, 1), received[-1].unbind(1)):
            part.mul_((self._factor(part.shape[1]) * length)[:, None])
        if self.bits > 1:
            codes, scales = payload.fields["codes"].data, payload.fields["scales"].data
            pieces = zip(z.split(rotation.pieces, 1), codes.split(rotation.pieces, 1), scales.unbind(1))
            for part, code, scale in pieces:
                part.add_(levels(code, self.bits - 1).mul_(scale[:, None]))
        return rotation.inverse(z, key, ids)

    def _factor(self, size: int) -> float:
        """a of a piece of c entries: sqrt(pi/2) / c, or 1 / (c E|u|), E|u| = Gamma(c/2) / (sqrt(pi) Gamma((c+1)/2))."""
        if self.residual == "gaussian":
            return math.sqrt(math.pi / 2) / size
        return math.sqrt(math.pi) / size * math.exp(math.lgamma((size + 1) / 2) - math.lgamma(size / 2))

    def _project(self, rho: Tensor, key: Key, ids: Tensor) -> Tensor:
        """[M, D] S rho."""
        if self.residual == "rotation":
            return Rotation(rho.shape[1]).forward(rho, key.fold_in("residual"), ids)
        rows = [torch.mv(matrix, row) for matrix, row in zip(_gaussian(key, ids, rho.shape[1]), rho)]
        return torch.stack(rows) if rows else rho

    def _project_back(self, signs: Tensor, key: Key, ids: Tensor) -> Tensor:
        """[M, D] S^T q."""
        if self.residual == "rotation":
            return Rotation(signs.shape[1]).inverse(signs, key.fold_in("residual"), ids)
        rows = [torch.mv(matrix.T, row) for matrix, row in zip(_gaussian(key, ids, signs.shape[1]), signs)]
        return torch.stack(rows) if rows else signs


def _gaussian(key: Key, ids: Tensor, dim: int) -> Iterator[Tensor]:
    """The D x D Gaussian matrix of each sender, one after another."""
    for row in range(len(ids)):
        yield key.fold_in("residual").normal(ids[row : row + 1], dim * dim).view(dim, dim)
