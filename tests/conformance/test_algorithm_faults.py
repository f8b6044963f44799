"""A planted fault in each property makes the algorithm suite fail."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.check import algorithm as suite
from fedcomp.check import trajectory
from fedcomp.check.algorithm import AlgorithmCase
from fedcomp.check.failed import Failed
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.simulation.round_result import RoundResult
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Field, Payload
from fedcomp.wire.coding import Float

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
class GlobalNoise(FedAvg):
    """Draws from the global generator."""

    def round(self, state, cohort, ctx):
        new, metrics = super().round(state, cohort, ctx)
        return replace(new, theta=new.theta + 1e-3 * torch.randn_like(new.theta)), metrics


@dataclass(frozen=True)
class ChunkNoise(FedAvg):
    """Draws in the order in which clients are trained."""

    def round(self, state, cohort, ctx):
        generator = ctx.key.generator()

        def work(data, theta):
            return theta + 0.1 * torch.randn(theta.shape, generator=generator)

        noisy = ctx.clients.map_clients(work, cohort, state.theta.expand(cohort.size, -1))
        new, metrics = super().round(state, cohort, ctx)
        return replace(new, theta=new.theta + (noisy - state.theta).mean(0)), metrics


@dataclass(frozen=True)
class ChunkPlaces(FedAvg):
    """Draws for the first, second, ... client of a chunk, whoever they are."""

    def round(self, state, cohort, ctx):
        key = ctx.sender_key("noise")

        def work(data, theta):
            return theta + 0.1 * key.uniform(torch.arange(len(theta)), theta.shape[1])

        noisy = ctx.clients.map_clients(work, cohort, state.theta.expand(cohort.size, -1))
        new, metrics = super().round(state, cohort, ctx)
        return replace(new, theta=new.theta + (noisy - state.theta).mean(0)), metrics


@dataclass(frozen=True)
class ChunkLargest(FedAvg):
    """Adds to what a client holds 0.001 % of the largest in its chunk."""

    def round(self, state, cohort, ctx):
        own = torch.arange(cohort.size, dtype=torch.float32)[:, None]
        mixed = ctx.clients.map_clients(lambda data, row: row + 1e-5 * row.max(), cohort, own)
        new, metrics = super().round(state, cohort, ctx)
        return replace(new, theta=new.theta * (1 + (mixed - own).mean())), metrics


@dataclass(frozen=True)
class DecaysAll(FedAvg):
    """Lets the memories of idle clients fade."""

    def round(self, state, cohort, ctx):
        new, metrics = super().round(state, cohort, ctx)
        return replace(new, uplink=replace(new.uplink, sender=new.uplink.sender * 0.9)), metrics


@dataclass(frozen=True)
class InPlace(FedAvg):
    """Writes into the state that it was given."""

    def round(self, state, cohort, ctx):
        state.theta.mul_(0.9)
        return super().round(state, cohort, ctx)


@dataclass(frozen=True)
class FreeRide(FedAvg):
    """Sends the model once more without counting it."""

    def round(self, state, cohort, ctx):
        ctx.link.broadcast(Payload({"more": Field(state.theta[None], Float())}), cohort)
        return super().round(state, cohort, ctx)


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


@dataclass(frozen=True)
class NeverLearns(FedAvg):
    """Returns its state."""

    def round(self, state, cohort, ctx):
        _, metrics = super().round(state, cohort, ctx)
        return state, metrics


@dataclass(frozen=True)
class DividesByNorm(FedAvg):
    """Normalises the step."""

    def round(self, state, cohort, ctx):
        new, metrics = super().round(state, cohort, ctx)
        step = new.theta - state.theta
        return replace(new, theta=state.theta + step / (step[:20].norm())), metrics


@dataclass(frozen=True)
class SampleDeviation(FedAvg):
    """Scales the step by the spread over clients, which one client does not have."""

    def round(self, state, cohort, ctx):
        new, metrics = super().round(state, cohort, ctx)
        loss = metrics["train/loss"]
        spread = (loss - loss.mean()).square().sum() / (loss.numel() - 1)
        return replace(new, theta=new.theta + 0 * spread), metrics


def _bits(dim, stats, layers, cohort):
    uplink = dim + 32 * len(layers)
    return {"uplink": cohort * uplink, "downlink": cohort * 32 * dim, "broadcast": 32 * dim}


FAULTS = [
    (trajectory.check_resume, KeepsOnSelf(*PARTS)),
    (trajectory.check_repeat, GlobalNoise(*PARTS)),
    (suite.check_chunks, ChunkNoise(*PARTS)),
    (suite.check_chunks, ChunkPlaces(*PARTS)),
    (suite.check_chunks, ChunkLargest(*PARTS)),
    (trajectory.check_idle_rows, DecaysAll(*PARTS)),
    (trajectory.check_pure, InPlace(*PARTS)),
    (suite.check_bits, FreeRide(*PARTS)),
    (trajectory.check_wire, FedAvg(*PARTS[:2], Compressor(Cheats()), DENSE)),
    (suite.check_learns, NeverLearns(*PARTS)),
    (suite.check_zeros, DividesByNorm(*PARTS)),
    (suite.check_one_client, SampleDeviation(*PARTS)),
]


@pytest.mark.parametrize(("check", "algorithm"), FAULTS, ids=[type(fault[1]).__name__ for fault in FAULTS])
def test_fault_is_found(check, algorithm) -> None:
    with pytest.raises(Failed):
        check(AlgorithmCase("faulty", algorithm, _bits))


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
def test_sound_algorithm_passes(check) -> None:
    check(AlgorithmCase("sound", FedAvg(*PARTS), _bits))


def test_an_engine_that_charges_empty_rounds_is_found(monkeypatch) -> None:
    def charges(self, index, state, ledger):
        ledger.add("downlink", 1, 1)
        return original(self, index, state, ledger)

    original = Simulation.round
    monkeypatch.setattr(Simulation, "round", charges)
    with pytest.raises(Failed):
        suite.check_empty(AlgorithmCase("sound", FedAvg(*PARTS), _bits))


def test_an_engine_that_trains_nobody_is_found(monkeypatch) -> None:
    def nobody(self, index, state, ledger):
        key = self.key.fold_in("round", index)
        cohort = self.participation.sample(key.fold_in("participation"), self.importance)
        if not cohort.size:
            return replace(state, theta=state.theta * 0.9), RoundResult(cohort, {})
        return original(self, index, state, ledger)

    original = Simulation.round
    monkeypatch.setattr(Simulation, "round", nobody)
    with pytest.raises(Failed):
        suite.check_empty(AlgorithmCase("sound", FedAvg(*PARTS), _bits))
