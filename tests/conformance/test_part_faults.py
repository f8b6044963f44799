"""A planted fault in each property makes the checks of participations, partitions and servers fail; ours pass."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fedcomp.check import ParticipationCase, PartitionCase, ServerCase
from fedcomp.check import participation as participations
from fedcomp.check import partition as partitions
from fedcomp.check import server as servers
from fedcomp.check.world import dataset
from fedcomp.core.cohort import Cohort
from fedcomp.partition.contract import Partition
from fedcomp.partition.iid import IID
from fedcomp.random.keys import Key
from fedcomp.server import ServerOptimizer
from tests.conformance.parts import assert_found, makes, passes
from tests.looped import looped
from tests.parts import Full, Uniform

KEPT: dict[Any, Any] = {}
FIVE = Uniform(5)


@dataclass(frozen=True)
class Draws(Uniform):
    """Five clients, drawn by a fault."""

    num_participants: int = 5
    fault: Callable[..., Cohort] = lambda key, importance, index: FIVE.sample(key, importance)
    expected: float = 5

    def inclusion(self, num_clients, round_index=0):
        return torch.full((num_clients,), self.expected / num_clients, dtype=torch.float64)

    def sample(self, key, importance, round_index=0):
        return self.fault(key, importance, round_index)


def once(key, importance, index):
    """The first cohort of a round is that of every key."""
    return KEPT.setdefault(index, FIVE.sample(key, importance))


def last(key, importance, index):
    """Draws by what it was asked before, if its key is not the one of before."""
    drawn = KEPT.get("key", key), FIVE.sample(KEPT.get("key", key), importance)
    KEPT["key"] = key
    return drawn[1]


def by_hash(key, importance, index):
    return FIVE.sample(Key((hash(key),)), importance)


def by_round(key, importance, index):
    return FIVE.sample(Key((index,)), importance)


def alike(key, importance, index):
    """Clients count alike, whatever they hold."""
    return FIVE.sample(key, torch.ones_like(importance))


def of_all(key, importance, index):
    """Shares of all samples, without 1/p."""
    ids = FIVE.sample(key, importance).ids
    return Cohort.of(ids.tolist(), importance[ids] / importance.sum())


def by_size(key, importance, index):
    """Sound: ten times one client, as likely as it has samples; each time counts a tenth."""
    share = importance / importance.sum()
    drawn = share.multinomial(10, replacement=True, generator=key.generator()).bincount(minlength=len(share))
    return Cohort.of(drawn.nonzero()[:, 0].tolist(), drawn[drawn > 0] / 10)


@dataclass(frozen=True)
class BySize(Draws):
    fault: Callable[..., Cohort] = by_size

    def inclusion(self, num_clients, round_index=0):
        share = ParticipationCase("", Full, num_clients).importance
        return 1 - (1 - share / share.sum()) ** 10

    def check(self, num_clients):
        if num_clients != 20:
            raise ValueError("only 20")


class Few(Full):
    """Takes two clients where there is one."""

    def sample(self, key, importance, round_index=0):
        return Full().sample(key, importance if len(importance) > 1 else importance.repeat(2))


class Anew(Full):
    """A probability that is another one whenever it is made."""

    made = 0

    def __init__(self):
        Anew.made += 1
        object.__setattr__(self, "chance", 1 / Anew.made)

    def inclusion(self, num_clients, round_index=0):
        return torch.full((num_clients,), self.chance, dtype=torch.float64)


@looped(
    "check, make, words",
    [
        (participations.check_cohorts, Few, r"1 clients, round 0: the participation drew clients \[0, 1\]"),
        (participations.check_again, lambda: Draws(fault=last), "round 0: clients .*, and by the same key"),
        (participations.check_again, lambda: Draws(fault=by_hash), "round 0: clients .*, and by the same key"),
        (participations.check_again, Anew, r"round 0: inclusion, asked of the same rule made anew, \[0\] is"),
        (participations.check_inclusion, lambda: Draws(expected=7), r"round 0: client \d+ was in .* says 350$"),
        (participations.check_inclusion, lambda: Draws(fault=by_round), "round 0: .* all of them are the same"),
        (participations.check_inclusion, lambda: Draws(fault=once), "round 0: .* all of them are the same"),
        (participations.check_weights, lambda: Draws(fault=alike), r"round 0: clients \[.* \[0.2, .* no average of"),
        (participations.check_weights, lambda: Draws(fault=of_all), r"round 0: clients \[.* no average of"),
    ],
)
def test_a_fault_of_a_participation_is_found(check, make, words: str) -> None:
    KEPT.clear()
    assert_found(check, ParticipationCase("faulty", make, rounds=1), words)


@dataclass(frozen=True)
class Deals(Partition):
    """Deals by a fault."""

    fault: Callable[..., Any] = lambda num, clients, key: IID().split(None, num, clients, key)

    def split(self, labels, num_samples, num_clients, key, owners=None):
        return self.fault(num_samples, num_clients, key)


def iid(num, clients, key):
    return IID().split(None, num, clients, key)


PARTS = [
    (
        partitions.check_parts,
        lambda num, clients, key: [*iid(num, clients - 1, key), torch.arange(1)],
        "7 clients: .* is held 2",
    ),
    (
        partitions.check_parts,
        lambda num, clients, key: iid(num, clients, key)[: clients - (clients < 3)],
        "1 clients: the partition returned nothing",
    ),
    (
        partitions.check_again,
        lambda num, clients, key: iid(num, clients, Key((hash(key),))),
        "client 0 has 9 samples .* by the key by which it had 9",
    ),
    (
        partitions.check_again,
        lambda num, clients, key: KEPT.pop(key, None) or KEPT.setdefault(key, iid(num, clients, Key((len(KEPT),)))),
        "client 0 has",
    ),
    (partitions.check_keys, lambda num, clients, key: iid(num, clients, Key()), "two keys deal the same samples"),
]


@looped("check, fault, words", PARTS)
def test_a_fault_of_a_partition_is_found(check, fault, words: str) -> None:
    KEPT.clear()
    assert_found(check, PartitionCase("faulty", lambda: Deals(fault=fault), dataset(), 7), words)


@dataclass(frozen=True)
class Steps(ServerOptimizer):
    """Steps along the update as a fault changes it; its list is no memory that a checkpoint has."""

    fault: Callable[..., Any] = lambda update, slots, kept: (update, slots)
    first: Callable[..., Any] = lambda theta: (theta.new_zeros(theta.shape),)
    kept: list = field(default_factory=list)

    def init(self, theta):
        return self.first(theta)

    def step(self, update, slots, theta):
        return self.fault(update, slots, self.kept)


def calibrated(update, slots, kept):
    """Steps of the length of the first update that it has seen."""
    kept.append(update.norm())
    return update / update.norm() * kept[0], slots


@looped(
    "check, fault, words",
    [
        (servers.check_steps, lambda update, slots, kept: (update / (len(update) - 1), slots), "1 parameters, step 1"),
        (
            servers.check_steps,
            lambda update, slots, kept: (update.mean(), slots),
            r"server=test_part_faults: a step is",
        ),
        (servers.check_zeros, lambda update, slots, kept: (update / update.norm(), slots), "a model and updates of ze"),
        (servers.check_resume, calibrated, r"resumed after step 3: step 4 \[0\] is"),
        (servers.check_alone, calibrated, r"beside another model: step 1 \[0\] is"),
        (servers.check_learns, lambda update, slots, kept: (-update, slots), "100 updates of 0.1 .* the way to go"),
    ],
)
def test_a_fault_of_a_server_is_found(check, fault, words: str) -> None:
    assert_found(check, ServerCase("faulty", lambda: Steps(fault)), words)


DATA = dataset()
OWNED = replace(DATA, train=replace(DATA.train, owner=torch.arange(len(DATA.train)) % 30))
DEALT = {"one_each": (DATA, None), "natural": (OWNED, None), "dirichlet": (DATA, 4)}
"""What is dealt to how many clients; others: the data of `world` to 7."""


@looped("name, make", [*makes("participation", "absent").items(), ("by size", BySize)])
def test_own_participations_pass(name: str, make) -> None:
    passes(ParticipationCase(name, make, rounds=1), participations)


@looped("name, make", makes("partition").items())
def test_own_partitions_pass(name: str, make) -> None:
    passes(PartitionCase(name, make, *DEALT.get(name, (DATA, 7))), partitions)


@looped("name, make", makes("server").items())
def test_own_servers_pass(name: str, make) -> None:
    passes(ServerCase(name, make), servers)
