"""An estimate of the mean of all vectors, for mean estimation. Shape legend: F entries of a vector."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from fedcomp.random.keys import Key


class MeanVector:
    """An estimate [F] of `mean`, the mean of the training inputs in float64; 0 before the first round."""

    kind = "mean_vector"

    def __init__(self, input_shape: tuple[int, ...], train: Iterable[Tensor]) -> None:
        self.dim, self.num_stats = math.prod(input_shape), 0
        self.layers = (self.dim,)
        self.module: nn.Module = nn.Flatten()
        sums = [(x.flatten(1).sum(0, dtype=torch.float64), len(x)) for x in train]
        self.mean = torch.stack([total for total, _ in sums]).sum(0) / sum(num for _, num in sums)

    def init(self, key: Key) -> tuple[Tensor, Tensor]:
        """The zero vector."""
        return torch.zeros(self.dim), torch.empty(0)

    def metrics(self, theta: Tensor, stats: Tensor, test: Iterable[Tensor]) -> dict[str, Tensor]:
        """`error`: squared distance of the last estimate to the mean of all inputs."""
        return {"error": (theta.to(torch.float64) - self.mean.to(theta.device, non_blocking=True)).square().sum()}
