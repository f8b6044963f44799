"""Cluster centres, the parameters of k-means. Shape legend: K centres, F features (all values of a sample)."""

import math
from collections.abc import Iterable
from typing import Annotated

import torch
from torch import Tensor, nn

from fedcomp.core.ranges import Whole, checked
from fedcomp.random.keys import Key


class Centres:
    """K points in the space of the normalised inputs, one layer of F parameters each.

    Before the first round they lie at the origin; the algorithm picks the first ones from the clients' data.
    """

    kind = "centres"

    @checked("model.")
    def __init__(self, input_shape: tuple[int, ...], num_clusters: Annotated[int, Whole()] = 10) -> None:
        self.layers = (math.prod(input_shape),) * num_clusters
        self.dim, self.num_stats = sum(self.layers), 0
        self.module: nn.Module = nn.Flatten()

    def init(self, key: Key) -> tuple[Tensor, Tensor]:
        """All centres at the origin."""
        return torch.zeros(self.dim), torch.empty(0)

    def metrics(self, theta: Tensor, stats: Tensor, test: Iterable[Tensor]) -> dict[str, Tensor]:
        """`objective`: mean over the test samples of the squared distance to the nearest centre."""
        centres, total, num = theta.view(len(self.layers), -1), torch.zeros_like(theta[0], dtype=torch.float64), 0
        for x in test:
            distances = torch.cdist(x.flatten(1), centres, compute_mode="use_mm_for_euclid_dist")
            total += distances.amin(-1).square().sum(dtype=torch.float64)
            num += len(x)
        return {"objective": total / num}
