"""Shards: sort by label, cut into equal runs, give each client a few at random.

H. B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017,
section 3 (2 shards a client); also the non-IID split of Rand-k-Spatial and Rand-k-Temporal.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.core.ranges import Whole
from fedcomp.partition.contract import Partition, required_clients, required_labels
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class Shards(Partition):
    """s shards a client out of s N shards, whose sizes differ by one sample at most.

    A shard is a run of samples sorted by label (equal labels keep their order in the dataset), so that few shards hold
    more than one class, and a client sees about s classes.
    """

    shards_per_client: Annotated[int, Whole()] = 2

    def split(
        self, labels: Tensor | None, num_samples: int, num_clients: int | None, key: Key, owners: Tensor | None = None
    ) -> list[Tensor]:
        """As `Partition.split`. Raises ValueError: more shards than samples."""
        labels = required_labels(labels, "shards")
        num_clients = required_clients(num_samples, num_clients)
        num_shards = self.shards_per_client * num_clients
        if num_shards > num_samples:
            raise ValueError(
                f"partition.shards_per_client is {self.shards_per_client}: {num_shards} shards for {num_clients} "
                f"clients, but only {num_samples} samples; at most {num_samples // num_clients} a client are possible"
            )
        shards = torch.argsort(labels, stable=True).tensor_split(num_shards)
        deal = torch.randperm(num_shards, generator=key.generator()).view(num_clients, self.shards_per_client)
        return [torch.cat([shards[shard] for shard in mine]) for mine in deal.tolist()]
