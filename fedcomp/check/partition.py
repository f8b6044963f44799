"""What every partition must pass."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.check.again import key, move_global_generators, same_key
from fedcomp.check.failed import require
from fedcomp.core.cohort import listed
from fedcomp.dataset.contract import Dataset
from fedcomp.partition import contract
from fedcomp.partition.contract import Partition
from fedcomp.random.keys import Key

FEW = (1, 2, 3)
"""Numbers of clients that a rule takes too, or refuses."""


@dataclass(frozen=True)
class PartitionCase:
    """A partition. name: shown with the results. make: makes it. data: what it deals, to so many clients."""

    name: str
    make: Callable[[], Partition]
    data: Dataset
    num_clients: int | None = 20

    def split(self, by: Key, num_clients: int | None = None) -> list[Tensor]:
        """The parts by this key, of a rule made anew; num_clients None: the case's."""
        labels, owners = (one if one is None else one.clone() for one in (self.data.labels, self.data.train.owner))
        return self.make().split(labels, len(self.data.train), num_clients or self.num_clients, by, owners)


def check_parts(case: PartitionCase) -> None:
    """Every client has samples, each of which one client has at most; with few clients too, unless it refuses them."""
    for num_clients in (case.num_clients, *FEW):
        try:
            parts = case.split(key("parts"), num_clients)
        except ValueError as refused:
            require(num_clients != case.num_clients, str(refused))
            continue
        try:
            contract.check_parts(parts, len(case.data.train), num_clients)
        except ValueError as error:
            require(False, f"{num_clients} clients: {error}")


def check_again(case: PartitionCase) -> None:
    """Equal keys give equal parts: after other draws, made anew, in another process."""
    first = [case.split(key("again", number)) for number in range(2)]
    move_global_generators()
    for number in (1, 0):
        parts = case.split(same_key("again", number))
        same = len(parts) == len(first[number])
        require(same, f"{len(first[number])} clients, and by the same key {len(parts)}")
        for client, both in enumerate(zip(parts, first[number])):
            again, before = (f"{len(one)} samples {listed(one.tolist())}" for one in both)
            require(torch.equal(*both), f"client {client} has {again} by the key by which it had {before}")


def check_keys(case: PartitionCase) -> None:
    """Another key gives other parts, as `seed=null` says, unless the rule says that the data alone decide (`draws`)."""
    if case.make().draws:
        both = [case.split(key("keys", number)) for number in range(2)]
        alike = len(both[0]) == len(both[1]) and all(map(torch.equal, *both))
        require(
            not alike,
            "two keys deal the same samples, so that runs of all seeds have one partition: draw by the key, or write "
            "draws = False in the class if nothing is drawn",
        )


CHECKS = (check_parts, check_again, check_keys)
