"""The principal direction of the data, a unit vector, for power iteration.

Shape legend: n samples, F features (all values of a sample).
"""

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedcomp.core.free_memory import free_bytes
from fedcomp.core.ranges import checked
from fedcomp.random.keys import Key

COPIES = 3
"""Matrices of features by features that are held at a time."""
ALL_BELOW = 500
"""Features below which the other eigenvectors cost nothing worth avoiding."""


class PrincipalDirection:
    """A unit vector w [F], compared with the top eigenvector v1 of A = (1/n) sum_i (x_i - c)(x_i - c)^T.

    The sum is over all training samples, x_i normalised as the dataset says; it is the mean of the clients' own
    matrices, weighted by their numbers of samples, whatever the partition. The papers say "covariance" and leave open
    what is subtracted: c = 0 (`none`: second moments), or the mean of the training inputs (`global`). That mean is then
    a constant of the preprocessing, as `dataset.mean` is: clients and server know it before the first round, and no
    bits are counted for it. It lies in the model's statistics.

    Attributes:
        principal: [F] float64 v1.
    """

    kind = "principal_direction"

    @checked("model.")
    def __init__(
        self, input_shape: tuple[int, ...], train: Iterable[Tensor], centre: Literal["none", "global"] = "none"
    ) -> None:
        self.dim = math.prod(input_shape)
        self.layers = (self.dim,)
        self.module: nn.Module = nn.Flatten()
        moment, mean = _moments(train, self.dim)
        self.mean = mean.float() if centre == "global" else torch.empty(0)
        self.num_stats = len(self.mean)
        self.principal = _top_eigenvector(moment - mean.outer(mean) if centre == "global" else moment)

    def init(self, key: Key) -> tuple[Tensor, Tensor]:
        """w drawn uniformly from [0, 1]^F and divided by its length; the inputs' mean [F] where it is subtracted."""
        w = torch.rand(self.dim, generator=key.generator())
        return w / w.norm(), self.mean

    def metrics(self, theta: Tensor, stats: Tensor, test: Iterable[Tensor]) -> dict[str, Tensor]:
        """`distance` 1 - <w, v1>^2, in [0, 1] which ignores sign and length of w.

        As the part of w that is orthogonal to v1, which keeps its digits where the difference of two ones loses them.
        """
        v1, w = self.principal.to(theta.device, non_blocking=True), theta.to(torch.float64)
        off = w - (w @ v1) * v1
        return {"distance": off.square().sum() / w.square().sum()}


def _top_eigenvector(matrix: Tensor) -> Tensor:
    """[F] of a symmetric matrix [F, F], both float64: by Lanczos iteration where all of them would take minutes."""
    dim = len(matrix)
    if dim < ALL_BELOW or not matrix.any():  # of zeros, which Lanczos iteration refuses
        return torch.linalg.eigh(matrix).eigenvectors[:, -1]
    from scipy.sparse.linalg import eigsh

    _, vectors = eigsh(matrix.numpy(), k=1, v0=np.random.default_rng(dim).standard_normal(dim))
    return torch.from_numpy(vectors[:, 0])


def _moments(train: Iterable[Tensor], dim: int) -> tuple[Tensor, Tensor]:
    """Second moments [F, F] and mean [F] of all inputs, summed over batches in float64."""
    needed, free = 8 * dim**2 * COPIES, free_bytes(torch.device("cpu"))
    if needed > free:
        raise ValueError(
            f"model=principal_direction compares with the eigenvector of a matrix of {dim} x {dim} numbers; that takes "
            f"{needed / 2**30:,.1f} GiB, but {free / 2**30:.1f} GiB are free: take a dataset with fewer features"
        )
    moment, total, num = torch.zeros(dim, dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64), 0
    for x in train:
        rows = x.flatten(1)
        moment += rows.T @ rows
        total += rows.sum(0, dtype=torch.float64)
        num += len(rows)
    return moment / num, total / num
