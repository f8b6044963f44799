"""One sample a client: client i holds sample i, for mean estimation of given vectors."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcomp.partition.contract import Partition
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class OneEach(Partition):
    """As many clients as samples, in the samples' order; nothing is drawn."""

    draws: ClassVar[bool] = False

    def split(
        self, labels: Tensor | None, num_samples: int, num_clients: int | None, key: Key, owners: Tensor | None = None
    ) -> list[Tensor]:
        """As `Partition.split`; works without labels. Raises ValueError: another number of clients than of samples."""
        if num_clients not in (None, num_samples):
            raise ValueError(
                f"partition=one_each gives every client one sample, but there are {num_clients} clients and "
                f"{num_samples} samples: set num_clients={num_samples}, or take partition=iid"
            )
        return list(torch.arange(num_samples).split(1))
