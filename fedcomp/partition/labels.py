"""A fixed number of labels a client.

FedMRN's second non-IID split (3 of 10 labels, 20 of 100): Li et al., "Masked random noise for communication-efficient
federated learning", ACM MM 2024, and its official code, where labels are not random but dealt to the least used. That
code sorts unstably, so that its label sets depend on the NumPy build; here the sort is stable.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.core.ranges import Whole
from fedcomp.partition.contract import Partition, check_parts, required_clients, required_labels
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class Labels(Partition):
    """Each client holds k labels; each class is shuffled and cut evenly over the clients that hold it.

    Attributes:
        variant: "balanced": client after client takes the k labels that the fewest clients hold so far, the lower label
            first. 100 clients with 3 of 10 labels make 10 distinct sets {0,1,2}, {3,4,5}, {6,7,8}, {9,0,1}, ...
            "random": each client draws k distinct labels; a label that no client drew then replaces a random holding of
            a label that several clients hold, so that every sample is used.
    """

    labels_per_client: Annotated[int, Whole()] = 3
    variant: Literal["balanced", "random"] = "balanced"

    def split(
        self, labels: Tensor | None, num_samples: int, num_clients: int | None, key: Key, owners: Tensor | None = None
    ) -> list[Tensor]:
        """As `Partition.split`.

        Raises ValueError: k above the number of classes, or too few clients to hold every class (N k < C).
        """
        labels = required_labels(labels, "labels")
        num_clients = required_clients(num_samples, num_clients)
        classes = labels.unique()
        holds_NC = self._holdings(num_clients, len(classes), key)
        parts: list[list[Tensor]] = [[] for _ in range(num_clients)]
        generator = key.fold_in("samples").generator()
        for column, label in enumerate(classes):
            samples = torch.nonzero(labels == label)[:, 0]
            samples = samples[torch.randperm(len(samples), generator=generator)]
            holders = torch.nonzero(holds_NC[:, column])[:, 0].tolist()
            for client, share in zip(holders, samples.tensor_split(len(holders))):
                parts[client].append(share)
        dealt = [torch.cat(part) for part in parts]
        check_parts(dealt, num_samples)
        return dealt

    def _holdings(self, num_clients: int, num_classes: int, key: Key) -> Tensor:
        """[N, C] bool: which client holds which class; k a row, at least one a column."""
        k = self.labels_per_client
        if k > num_classes:
            raise ValueError(f"partition.labels_per_client is {k}, but the training samples have {num_classes} classes")
        if num_clients * k < num_classes:
            raise ValueError(
                f"partition.labels_per_client is {k}: {num_clients} clients hold at most {num_clients * k} of "
                f"{num_classes} classes; raise it to {-(-num_classes // num_clients)} or more, or take more clients"
            )
        if self.variant == "balanced":
            return _balanced(num_clients, num_classes, k)
        return _random(num_clients, num_classes, k, key)


def _balanced(num_clients: int, num_classes: int, k: int) -> Tensor:
    holds_NC = torch.zeros(num_clients, num_classes, dtype=torch.bool)
    times_held = torch.zeros(num_classes, dtype=torch.int64)
    for client in range(num_clients):
        taken = torch.argsort(times_held, stable=True)[:k]
        holds_NC[client, taken] = True
        times_held[taken] += 1
    return holds_NC


def _random(num_clients: int, num_classes: int, k: int, key: Key) -> Tensor:
    generator = key.fold_in("labels").generator()
    holds_NC = torch.zeros(num_clients, num_classes, dtype=torch.bool)
    for client in range(num_clients):
        holds_NC[client, torch.randperm(num_classes, generator=generator)[:k]] = True
    for orphan in torch.nonzero(~holds_NC.any(0))[:, 0]:
        # Some label has two holders or more, for N k >= C holdings lie on fewer than C labels.
        spare = torch.nonzero(holds_NC & (holds_NC.sum(0) > 1))
        client, label = spare[torch.randint(len(spare), (1,), generator=generator)[0]]
        holds_NC[client, label] = False
        holds_NC[client, orphan] = True
    return holds_NC
