"""DRIVE: one bit an entry of the rotated vector, and a scale.

S. Vargaftik, R. Ben Basat, A. Portnoy, G. Mendelson, Y. Ben-Itzhak, M. Mitzenmacher, "DRIVE: one-bit distributed mean
estimation", NeurIPS 2021, algorithm 1: z = R x for a random rotation R, send sign(z) and a; decode R^T (a sign(z)).
The FedMRN paper describes a as that which minimises ||x - decoded||: a = ||z||_1 / D, the default here, biased towards
0. The paper's own, and its code's default, is a = ||z||_2^2 / ||z||_1, unbiased for a uniformly random rotation. R is a
randomised Hadamard transform, as in their code, but nothing is padded (`rotation.py`), and each piece has its own a.

On dense vectors ||x - decoded||^2 is (1 - 2/pi) ||x||^2 with min_mse and (pi/2 - 1) ||x||^2 with unbiased, however
unequal their layers are. One Hadamard transform is no uniformly random rotation of sparse vectors: of a piece whose
size is a power of two, two entries a > b other than 0 are decoded to ((a^2 + b^2) / a, 0) by unbiased whatever the
signs. Two rotations mend that, up to the little by which two transforms differ from a uniformly random one.

Shape legend: M senders, D entries, P pieces.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.compressor.rotations.lloyd_max import lloyd_max
from fedcomp.compressor.rotations.rotated_codec import RotatedCodec, ScaleRule, fit_scale, plus_minus
from fedcomp.compressor.rotations.rotation import Rotation
from fedcomp.compressor.seed import seed_field, seed_layout, shared_source
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Payload, SharedKnowledge
from fedcomp.wire.coding import Float, Unsigned


@dataclass(frozen=True)
class Drive(RotatedCodec):
    """Sends the signs of the rotated vector; options as in `RotatedCodec`."""

    scale: ScaleRule = "min_mse"

    @property
    def distortion(self) -> float:
        """1 - 2 / pi."""
        return lloyd_max(1).distortion

    def encode(self, x: Tensor, common: SharedKnowledge, sender_key: Key) -> Payload:
        """One bit an entry (1 for z >= 0), and the scales [M, P]."""
        seed = seed_field(self.seed_cost, common, sender_key)
        rotation = Rotation(common.dim, self.rotations)
        z = rotation.forward(x, *shared_source(Payload(seed), common))
        signs = (z >= 0).view(torch.uint8)
        scales = [
            fit_scale(self.scale, part, plus_minus(bits))
            for part, bits in zip(z.split(rotation.pieces, 1), signs.split(rotation.pieces, 1))
        ]
        fields = {"signs": Field(signs, Unsigned(1)), "scales": Field(torch.stack(scales, 1), Float())}
        return Payload(seed | fields, paper_bits=common.dim)

    def decode(self, payload: Payload, common: SharedKnowledge) -> Tensor:
        """R^T (a sign(z))."""
        rotation = Rotation(common.dim, self.rotations)
        layout = seed_layout(self.seed_cost) | {"signs": common.dim, "scales": len(rotation.pieces)}
        *_, signs, scales = payload.expect(**layout)
        z = plus_minus(signs)
        for part, scale in zip(z.split(rotation.pieces, 1), scales.unbind(1)):
            part.mul_(scale[:, None])
        return rotation.inverse(z, *shared_source(payload, common))
