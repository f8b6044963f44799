"""The contract of a partition: how training samples are dealt to clients. Shape legend: n samples, N clients."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedcomp.core.ranges import CheckedOptions, Whole
from fedcomp.core.validate import check_count
from fedcomp.random.keys import Key


@dataclass(frozen=True, kw_only=True)
class Partition(CheckedOptions, ABC):
    """A rule that gives every training sample to one client.

    Attributes:
        seed: None: a partition of its own for each run's seed; a number: one partition for all runs. The caller
            makes the key from it.
        draws: whether another key gives other parts; False: the data alone decide, in every case or in some.
    """

    seed: Annotated[int | None, Whole(0)] = None
    draws: ClassVar[bool] = True
    prefix = "partition."

    @abstractmethod
    def split(
        self, labels: Tensor | None, num_samples: int, num_clients: int | None, key: Key, owners: Tensor | None = None
    ) -> list[Tensor]:
        """Deal n samples to N clients.

        Args:
            labels: [n] int64 classes, on the CPU; None where a sample has no single class (regression, text).
            num_samples: n.
            num_clients: N; None: as many as follow from the data, for rules that can tell.
            key: names the draws; the same key gives the same parts.
            owners: [n] int64 owner of each sample, on the CPU; None where the dataset has none.
        Returns:
            N tensors of int64 sample numbers in [0, n), on the CPU, none empty, no number twice.
        Raises:
            ValueError: the rule cannot be kept with these samples and clients.
        """


def check_parts(parts: Sequence[Tensor], num_samples: int, num_clients: int | None = None) -> None:
    """What every partition must satisfy, including a user's own.

    Raises ValueError: no list, another number of clients than the run's, a part that is no int64 index list, a client
    without data, a sample outside [0, n) or held twice.
    """
    if not isinstance(parts, (list, tuple)) or not parts:
        given = "nothing" if isinstance(parts, (list, tuple)) else f"a {type(parts).__name__}"
        raise ValueError(f"the partition returned {given}, but must return a list: each client's samples, int64 [n]")
    if num_clients is not None and len(parts) != num_clients:
        raise ValueError(f"the partition deals samples to {len(parts)} clients, but num_clients is {num_clients}")
    for client, part in enumerate(parts):
        if not isinstance(part, Tensor) or part.dtype != torch.int64 or part.dim() != 1:
            what = f"{part.dtype} {tuple(part.shape)}" if isinstance(part, Tensor) else f"a {type(part).__name__}"
            raise ValueError(
                f"client {client}'s samples are {what}, but must be their numbers, a tensor int64 [n] "
                "(torch.as_tensor(numbers); of a mask, torch.nonzero(mask)[:, 0])"
            )
        if len(part) == 0:
            raise ValueError(
                f"client {client} would hold no data: {num_samples} samples were dealt to {len(parts)} clients; "
                "lower num_clients or choose a more even partition"
            )
    held = torch.cat(list(parts))
    if int(held.min()) < 0 or int(held.max()) >= num_samples:
        raise ValueError(
            f"a client holds sample {int(held.min() if held.min() < 0 else held.max())}, but samples are 0 to "
            f"{num_samples - 1}"
        )
    times = torch.bincount(held, minlength=num_samples)
    if int(times.max()) > 1:
        raise ValueError(f"sample {int(times.argmax())} is held {int(times.max())} times, but may be held once at most")


def required_clients(num_samples: int, num_clients: int | None) -> int:
    """N, for a rule that needs it to be given.

    Raises ValueError: no number, fewer than one client, or more clients than samples.
    """
    if num_clients is None:
        raise ValueError(
            "num_clients=null is for partition=natural and partition=one_each, which take it from the data; give a "
            "number"
        )
    check_count("num_clients", num_clients)
    if num_clients > num_samples:
        raise ValueError(
            f"client {num_samples} would hold no data: {num_clients} clients, but only {num_samples} training samples; "
            f"lower num_clients to {num_samples} or less"
        )
    return num_clients


def required_labels(labels: Tensor | None, partition: str) -> Tensor:
    """The labels, for a rule that deals by class. Raises ValueError: there are none."""
    if labels is None:
        raise ValueError(
            f"partition={partition} deals samples by class, but those of this dataset have no single class "
            "(regression, text): take partition=iid, or natural if they have owners"
        )
    return labels
