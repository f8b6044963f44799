"""Full participation: every client, every round."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.participation.contract import Participation
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class Full(Participation):
    """weight_i = importance_i / sum_j importance_j: an average."""

    def inclusion(self, num_clients: int, round_index: int = 0) -> Tensor:
        return torch.ones(num_clients, dtype=torch.float64)

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        num, weight = len(importance), importance / importance.sum()
        return Cohort(torch.arange(num), weight.to(torch.float32), tuple(range(num)))
