"""What every algorithm must pass. Each check takes an `AlgorithmCase` and raises Failed with an example."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fedcomp.algorithm.contract import Algorithm
from fedcomp.check import trajectory, world
from fedcomp.check.failed import described, require, same
from fedcomp.check.trajectory import Case
from fedcomp.core.pytree import flatten
from fedcomp.model.contract import NETWORK
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

FLOAT_STEPS = 2.0**-21
"""Four float32 roundings, one per round, for the rare value that is halfway between two floats."""
Bits = Callable[[int, int, tuple[int, ...], int], dict[str, int]]
"""(dim, num_stats, layers, cohort size) -> bits of one round: uplink, downlink, broadcast."""


@dataclass(frozen=True)
class AlgorithmCase:
    """An algorithm with the properties that are checked.

    Attributes:
        name: shown with the results.
        algorithm: with its options.
        bits: closed form of a round's bits on every link; None if they depend on the data, or nobody says.
        module: the network that it trains.
        participation: None: 3 of the clients a round, or all where the algorithm needs them.
        metric: decreases during training.
        data: samples to learn from; None: three noisy classes.
    """

    name: str
    algorithm: Algorithm
    bits: Bits | None = None
    module: Any = world.mlp
    participation: Any = None
    metric: str = "test/loss"
    data: Any = None

    def simulation(self, **options: Any) -> Simulation:
        """A simulation with a new copy of the algorithm, as after a restart: state on `self` is lost."""
        own = {"module": self.module, "participation": self.participation, "data": self.data}
        return world.simulation(copy.deepcopy(self.algorithm), **own | options)


def check_chunks(case: Case) -> None:
    """Any chunk size gives the same state; in float64, where the order of a sum flips no sign (`in_float64`)."""
    whole = flatten(world.run(world.in_float64(case.simulation())))
    for chunk_size in (1, 2):
        chunked = flatten(world.run(world.in_float64(case.simulation(chunk_size=chunk_size))))
        _require_finite(f"clients {chunk_size} at a time", chunked)
        for name, tensor in whole.items():
            wanted, got = tensor.double(), chunked[name].double()
            largest = float(wanted.abs().max()) if wanted.numel() else 0.0
            close = torch.allclose(got, wanted, rtol=0, atol=FLOAT_STEPS * max(largest, 1e-3))
            require(close, f"clients {chunk_size} at a time: state.{name} {described(got, wanted)}")


def check_learns(case: AlgorithmCase) -> None:
    """The state changes, and ten rounds lower the metric; statistics of BatchNorm are gathered."""
    sim = case.simulation(rounds=10)
    before, after = sim.init(), world.run(sim)
    require(not same(before, after), "after ten rounds the state is the first one")
    if sim.model.num_stats and case.algorithm.learns == NETWORK and not case.algorithm.personalised:
        start, end = (case.algorithm.evaluation_models(one, sim.key)["test"].stats for one in (before, after))
        gathered = not torch.equal(start.mean(0), end.mean(0))
        require(gathered, "after ten rounds the statistics of BatchNorm are the first ones: call ctx.gather_stats")
    first, last = (float(sim.test_metrics(at, one)[case.metric]) for at, one in ((0, before), (10, after)))
    slow = "if it is only slow, give another client.lr"
    require(last < first, f"ten rounds bring {case.metric} from {first:.4g} to {last:.4g}; {slow}")


def check_bits(case: AlgorithmCase) -> None:
    """The bits of every link in every round equal the closed form, where there is one."""
    if case.bits is None:
        return
    sim = case.simulation()
    told = sim.told_weights != "none"  # once, before the first round
    for index, one in enumerate(trajectory.trajectory(case).rounds):
        wanted = case.bits(sim.model.dim, sim.model.num_stats, sim.model.layers, one.cohort_size)
        given = {link: one.counters[link] for link in wanted}
        require(given == wanted or (told and not index), f"round {index + 1}: {given} bits instead of {wanted}")


def check_empty(case: AlgorithmCase) -> None:
    """A round with an empty cohort changes no state and sends no bits."""
    if case.simulation().participation is world.FULL:
        return  # no round is empty
    sim = case.simulation(participation=world.NOBODY)
    ledger = Ledger()
    state = world.run(sim, ledger=ledger)
    require(same(state, sim.init()), "rounds without clients change the state")
    require(not any(ledger.counters().values()), f"rounds without clients send {ledger.counters()}")


def check_one_client(case: AlgorithmCase) -> None:
    """A world of one client with one sample gives finite numbers."""
    _require_finite("one client with one sample", world.run(case.simulation(participation=world.FULL, sizes=(1,))))


def check_zeros(case: AlgorithmCase) -> None:
    """Inputs that are all zero give no NaN."""
    sim = case.simulation(data=world.zeros(case.simulation().dataset))
    state = world.run(sim)
    _require_finite("inputs of zeros", state)
    require(sim.test_metrics(4, state)[case.metric] >= 0, f"inputs of zeros: {case.metric} is not 0 or more")


CHECKS = (*trajectory.CHECKS, check_chunks, check_learns, check_bits, check_empty, check_one_client, check_zeros)


def _require_finite(where: str, state: Any) -> None:
    for name, tensor in flatten(state).items():
        require(torch.isfinite(tensor).all(), f"{where}: state.{name} is {tensor.flatten()[:8].tolist()}")
