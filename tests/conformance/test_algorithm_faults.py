"""A planted fault in each property makes the algorithm suite fail."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from fedcomp.check import algorithm as suite
from fedcomp.check import trajectory, world
from fedcomp.check.algorithm import AlgorithmCase
from fedcomp.check.failed import Failed
from fedcomp.simulation.round_result import RoundResult
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float
from tests.looped import looped
from tests.parts import Compressor, Dense, ErrorFeedback, FedAvg, ServerSgd, Sgd, Sign

DENSE, SIGN = Compressor(Dense()), Compressor(Sign(), ErrorFeedback())
PARTS = (Sgd(lr=0.1, batch_size=4), ServerSgd(), SIGN, DENSE)


@dataclass(frozen=True)
class KeepsOnSelf(FedAvg):
    """Remembers the last model on itself, where no checkpoint sees it."""

    last: list = field(default_factory=list)

    def round(self, state, cohort, ctx):
        new, metrics = super().round(state, cohort, ctx)
        step = self.last[-1] if ctx.round and self.last else torch.zeros_like(new.theta)
        self.last.append(new.theta - state.theta)
        return replace(new, theta=new.theta + 0.5 * step), metrics


@dataclass(frozen=True)
class Planted(FedAvg):
    """FedAvg whose state after a round is what `fault(old, new, cohort, ctx)` makes of it."""

    fault: Callable[..., Any] = None  # type: ignore[assignment]

    def round(self, state, cohort, ctx):
        new, metrics = super().round(state, cohort, ctx)
        return self.fault(state, new, cohort, ctx), metrics


def moved(new, step):
    """The state with its model moved."""
    return replace(new, theta=new.theta + step)


def chunk_noise(old, new, cohort, ctx):
    """Draws in the order in which clients are trained."""
    generator = ctx.key.generator()
    rows = old.theta.expand(cohort.size, -1)
    noise = ctx.clients.map_clients(lambda data, row: torch.randn(row.shape, generator=generator), cohort, rows)
    return moved(new, 0.1 * noise.mean(0))


def chunk_positions(old, new, cohort, ctx):
    """Draws for the first, second, ... client of a chunk, whoever they are."""
    key, zeros = ctx.sender_key("noise"), torch.zeros(cohort.size, 3)
    noise = ctx.clients.map_clients(lambda data, row: key.uniform(torch.arange(len(row)), 3), cohort, zeros)
    return moved(new, 0.1 * noise.mean())


def chunk_largest(old, new, cohort, ctx):
    """Adds to what a client holds 0.001 % of the largest in its chunk."""
    own = torch.arange(cohort.size, dtype=torch.float32)[:, None]
    mixed = ctx.clients.map_clients(lambda data, row: row + 1e-5 * row.max(), cohort, own)
    return replace(new, theta=new.theta * (1 + (mixed - own).mean()))


def in_place(old, new, cohort, ctx):
    """Writes into the state that it was given, but not in the first round, where any run finds it."""
    if ctx.round:
        old.theta.mul_(0.9)
    return new


def free_ride(old, new, cohort, ctx):
    """Sends the model once more without counting it."""
    ctx.link.broadcast(Payload({"more": Field(old.theta[None], Float())}), cohort)
    return new


def fades(old, new, cohort, ctx):
    """Lets the memories of idle clients fade."""
    return replace(new, uplink=replace(new.uplink, sender=new.uplink.sender * 0.9))


def divides_by_norm(old, new, cohort, ctx):
    """Normalises the step."""
    step = new.theta - old.theta
    return replace(new, theta=old.theta + step / step[:20].norm())


def spread(old, new, cohort, ctx):
    """Scales the step by a spread over clients, which one client does not have."""
    weight = cohort.weight
    return moved(new, 0 * (weight - weight.mean()).square().sum() / (weight.numel() - 1))


@dataclass(frozen=True)
class Cheats(Sign):
    """A codec whose receiver reads what the sender kept."""

    kept: dict = field(default_factory=dict)

    def encode(self, x, common, sender_key):
        payload = super().encode(x, common, sender_key)
        self.kept[id(payload)] = x
        return payload

    def decode(self, payload, common):
        return self.kept.get(id(payload), super().decode(payload, common))


def _bits(dim, stats, layers, cohort):
    uplink = dim + 32 * len(layers)
    return {"uplink": cohort * uplink, "downlink": cohort * 32 * dim, "broadcast": 32 * dim}


FAULTS = [
    (trajectory.check_repeat, lambda old, new, cohort, ctx: moved(new, 1e-3 * torch.randn_like(new.theta))),
    (trajectory.check_repeat, lambda old, new, cohort, ctx: moved(new, 0 * torch.randn_like(new.theta))),
    (suite.check_chunks, chunk_noise),
    (suite.check_chunks, chunk_positions),
    (suite.check_chunks, chunk_largest),
    (trajectory.check_idle_rows, fades),
    (trajectory.check_pure, in_place),
    (suite.check_bits, free_ride),
    (suite.check_learns, lambda old, new, cohort, ctx: replace(old, uplink=new.uplink)),
    (suite.check_zeros, divides_by_norm),
    (suite.check_one_client, spread),
]
OTHERS = [
    (trajectory.check_resume, KeepsOnSelf(*PARTS)),
    (trajectory.check_wire, FedAvg(*PARTS[:2], Compressor(Cheats()), DENSE)),
]


@looped("check, algorithm", [*((check, Planted(*PARTS, fault=fault)) for check, fault in FAULTS), *OTHERS])
def test_fault_is_found(check, algorithm) -> None:
    with pytest.raises(Failed):
        check(AlgorithmCase("faulty", algorithm, _bits))


def test_statistics_that_are_never_gathered_are_found() -> None:
    plain = Planted(*PARTS, fault=lambda old, new, cohort, ctx: replace(new, stats=old.stats))
    with pytest.raises(Failed, match="the statistics of BatchNorm are the first ones: call ctx.gather_stats"):
        suite.check_learns(AlgorithmCase("faulty", plain, _bits, world.with_batch_norm))


@looped("check", suite.CHECKS)
def test_sound_algorithm_passes(check) -> None:
    check(AlgorithmCase("sound", FedAvg(*PARTS), _bits))


def charges(self, index, state, ledger):
    """An engine that charges empty rounds."""
    ledger.add("downlink", 1, 1)
    return SOUND(self, index, state, ledger)


def trains_nobody(self, index, state, ledger):
    cohort = self.participation.sample(self.round_key(index).fold_in("participation"), self.importance)
    if not cohort.size:
        return replace(state, theta=state.theta * 0.9), RoundResult(cohort, {})
    return SOUND(self, index, state, ledger)


SOUND = Simulation.round


@pytest.mark.parametrize("engine", [charges, trains_nobody])
def test_a_fault_of_the_engine_in_empty_rounds_is_found(engine, monkeypatch) -> None:
    monkeypatch.setattr(Simulation, "round", engine)
    with pytest.raises(Failed):
        suite.check_empty(AlgorithmCase("sound", FedAvg(*PARTS), _bits))
