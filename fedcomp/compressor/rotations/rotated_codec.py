"""What codecs of rotated vectors share: options, quantisers of a normal entry, and the number that goes with a piece.

Shape legend: M senders, c entries of a piece.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.rotations.lloyd_max import lloyd_max
from fedcomp.compressor.seed import SeedCost
from fedcomp.core.ranges import Whole

ScaleRule = Literal["min_mse", "unbiased", "norm"]


@dataclass(frozen=True, kw_only=True)
class RotatedCodec(Codec):
    """Options of a codec that rotates a vector at random, quantises it, and scales each piece (`fit_scale`)."""

    rotations: Annotated[int, Whole()] = 1
    seed_cost: SeedCost = "sent"

    @property
    @abstractmethod
    def scale(self) -> ScaleRule: ...
    @property
    @abstractmethod
    def distortion(self) -> float:
        """D_b, the quantiser's mean squared error of a standard normal entry."""

    @property
    def unbiased(self) -> bool:
        """As far as the rotation is uniformly random: close to it on dense vectors."""
        return self.scale == "unbiased"

    @property
    def contractive(self) -> bool:
        """The unbiased scale lengthens the vector: of one bit its error is 0.57 ||x||^2, on dense vectors only."""
        return self.scale == "min_mse"

    def expected_error(self, x: Tensor) -> Tensor:
        """[M] float64 D_b ||x||^2, or D_b / (1 - D_b) ||x||^2 with the unbiased scale: for long, dense vectors."""
        left = self.distortion
        return (left / (1 - left) if self.scale == "unbiased" else left) * x.double().square().sum(1)


def fit_scale(choice: str, z_MC: Tensor, levels_MC: Tensor) -> Tensor:
    """[M] the a with which a * q stands for z, row by row; 0 for z = 0.

    Args:
        choice: min_mse, a = <q, z> / ||q||^2, minimises ||z - a q||; unbiased, a = ||z||^2 / <q, z>, gives a * q the
            inner product ||z||^2 with z in every draw, and so the mean z over random rotations; norm,
            a = c_1 ||z|| / sqrt(c) with the centroid c_1 = sqrt(2 / pi) of one bit, the unit of q, is not fitted to q:
            TurboQuant's, biased (<a q, z> is (1 - D_b) ||z||^2 in the mean).
        z_MC: [M, c] a piece of the rotated rows. levels_MC: [M, c] q, what its entries were rounded to.
    """
    if choice == "norm":
        return torch.linalg.vector_norm(z_MC, dim=1) * (lloyd_max(1).centroids[-1] / z_MC.shape[1] ** 0.5)
    inner = (levels_MC * z_MC).sum(1)
    if choice == "min_mse":
        above, below = inner, levels_MC.square().sum(1)
    else:
        above, below = z_MC.square().sum(1), inner
    return torch.where(inner > 0, above / below, 0.0)


def plus_minus(bits: Tensor) -> Tensor:
    """float32 -1 for 0 and +1 for 1."""
    return bits.to(torch.int8).mul_(2).sub_(1).to(torch.float32)


def quantise(z: Tensor, inverse_std: Tensor, bits: int) -> Tensor:
    """uint8 codes of z * inverse_std, in the order of the centroids."""
    if bits == 1:
        return (z >= 0).view(torch.uint8)
    boundaries = torch.tensor(lloyd_max(bits).boundaries, dtype=z.dtype, device="cpu").to(z.device, non_blocking=True)
    return torch.bucketize(z * inverse_std, boundaries, out_int32=True, right=True).to(torch.uint8)


def levels(codes: Tensor, bits: int) -> Tensor:
    """The centroids of codes in units of c_1: of one bit, +-1."""
    if bits == 1:
        return plus_minus(codes)
    table = torch.tensor(lloyd_max(bits).centroids, device="cpu") / lloyd_max(1).centroids[-1]
    table = table.to(codes.device, non_blocking=True)
    return table.index_select(0, codes.flatten().to(torch.int32)).view(codes.shape)
