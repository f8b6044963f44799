"""Natural partitions: every owner of samples (a writer, a speaker, a user) is a client.

As in LEAF: S. Caldas et al., "LEAF: a benchmark for federated settings", 2018.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedcomp.core.ranges import Whole
from fedcomp.partition.contract import Partition
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class Natural(Partition):
    """Client i holds all training samples of one owner, in the dataset's order; clients are in the order of owners.

    N is the number of owners with enough samples (`num_clients=null`), or that many of them drawn by the key. The
    samples of the other owners are not used.
    """

    draws: ClassVar[bool] = False  # where all owners are clients

    min_size: Annotated[int, Whole()] = 1

    def split(
        self, labels: Tensor | None, num_samples: int, num_clients: int | None, key: Key, owners: Tensor | None = None
    ) -> list[Tensor]:
        """As `Partition.split`; works without labels.

        Raises ValueError: the dataset has no owners, none of them has `min_size` samples, or there are fewer than N.
        """
        if owners is None:
            raise ValueError(
                "partition=natural makes every owner of samples a client, but this dataset does not say who owns them: "
                "take a dataset that does (shakespeare; csv, text, huggingface, image_folder with dataset.owner), or "
                "partition=iid"
            )
        numbers, sizes = owners.unique(return_counts=True)
        kept = numbers[sizes >= self.min_size]
        if not len(kept):
            raise ValueError(
                f"partition.min_size is {self.min_size}, but the largest of {len(numbers)} owners has "
                f"{int(sizes.max())} training samples; lower it"
            )
        if num_clients is not None and not 1 <= num_clients <= len(kept):
            raise ValueError(
                f"num_clients is {num_clients}, but {len(kept)} of {len(numbers)} owners have "
                f"partition.min_size={self.min_size} training samples or more: take 1 to {len(kept)}, or null for all"
            )
        if num_clients is not None and num_clients < len(kept):
            drawn = torch.randperm(len(kept), generator=key.generator())[:num_clients]
            kept = kept[drawn.sort().values]
        order = torch.argsort(owners, stable=True)
        runs = dict(zip(numbers.tolist(), order.split(sizes.tolist())))
        return [runs[owner] for owner in kept.tolist()]
