"""Independent and identically distributed clients: shuffle all samples, cut into equal parts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.partition.contract import Partition, required_clients
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class IID(Partition):
    """A random permutation in N parts whose sizes differ by one sample at most."""

    def split(
        self, labels: Tensor | None, num_samples: int, num_clients: int | None, key: Key, owners: Tensor | None = None
    ) -> list[Tensor]:
        num_clients = required_clients(num_samples, num_clients)
        order = torch.randperm(num_samples, generator=key.generator())
        return list(order.tensor_split(num_clients))
