"""The conformance suite of algorithms. Each check takes an `AlgorithmCase` and fails with an assertion."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcomp.algorithm.contract import Algorithm
from fedcomp.core.pytree import flatten
from fedcomp.records.checkpoint import Checkpoint, load, save
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger, WireLink
from tests.conformance import world

FLOAT_STEPS = 2.0**-21
"""Four float32 roundings, one per round, for the rare value that is halfway between two floats."""
Bits = Callable[[int, int, tuple[int, ...], int], dict[str, int]]
"""(dim, num_stats, layers, cohort size) -> bits of one round: uplink, downlink, broadcast."""


@dataclass(frozen=True)
class AlgorithmCase:
    """An algorithm with the properties that the suite checks.

    Attributes:
        name: shown by pytest.
        algorithm: with its options.
        bits: closed form of a round's bits on every link; None if they depend on the data.
        module: the network that it trains.
        participation: `world.FULL` for algorithms that need every client.
        metric: decreases during training.
    """

    name: str
    algorithm: Algorithm
    bits: Bits | None
    module: Any = world.mlp
    participation: Any = world.SOME
    metric: str = "test/loss"

    def simulation(self, **options: Any) -> Simulation:
        """A simulation with a new copy of the algorithm, as after a restart: state on `self` is lost."""
        return world.simulation(
            copy.deepcopy(self.algorithm), **{"module": self.module, "participation": self.participation} | options
        )


Unbroken = tuple[dict[str, torch.Tensor], dict[str, int]]
_UNBROKEN: dict[tuple[int, torch.device], tuple[Any, Unbroken]] = {}


def unbroken(case: Any) -> Unbroken:
    """State, as a copy of its tensors, and counters after all rounds; one run for all checks that compare."""
    key = id(case), world.DEVICE
    if key not in _UNBROKEN:
        ledger = Ledger()
        state = world.run(case.simulation(), ledger=ledger)
        tensors = {name: tensor.clone() for name, tensor in flatten(state).items()}
        _UNBROKEN[key] = case, (tensors, ledger.counters())  # the case is kept, so that its id stays its own
    return _UNBROKEN[key][1]


def equal(one: Any, other: Any) -> bool:
    """Whether two states, or a state and its tensors by name, are the same bit for bit."""
    left, right = (state if isinstance(state, dict) else flatten(state) for state in (one, other))
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def check_wire(case: AlgorithmCase) -> None:
    """Packing messages into bytes gives the same state bit for bit, and the same ledger."""
    state, counters = unbroken(case)
    packed = Ledger()
    assert equal(world.run(case.simulation(link=WireLink), ledger=packed), state)
    assert packed.counters() == counters


def check_chunks(case: AlgorithmCase) -> None:
    """Any chunk size gives the same state; in float64, where the order of a sum flips no sign (`in_float64`)."""
    whole = flatten(world.run(world.in_float64(case.simulation())))
    for chunk_size in (1, 2):
        chunked = flatten(world.run(world.in_float64(case.simulation(chunk_size=chunk_size))))
        for name, tensor in whole.items():
            wanted, got = tensor.double(), chunked[name].double()
            largest = float(wanted.abs().max()) if wanted.numel() else 0.0
            assert torch.allclose(got, wanted, rtol=0, atol=FLOAT_STEPS * max(largest, 1e-3)), name


def check_resume(case: AlgorithmCase, folder: Path) -> None:
    """Saved after two rounds and loaded into a fresh simulation: the same state bit for bit, and the same ledger."""
    whole, counters = unbroken(case)
    first, second = Ledger(), Ledger()
    half = world.run(case.simulation(), last=2, ledger=first)
    save(folder / "checkpoint.pt", Checkpoint(2, half, first.counters(), 1.0), "hash")
    fresh = case.simulation()
    loaded = load(folder / "checkpoint.pt", fresh.init(), "hash")
    second.restore(loaded.ledger)
    assert equal(world.run(fresh, loaded.state, first=2, ledger=second), whole)
    assert second.counters() == counters


def check_repeat(case: AlgorithmCase) -> None:
    """The same seed gives the same bits, whatever the state of torch's global generator."""
    before, _ = unbroken(case)
    torch.rand(5)
    assert equal(world.run(case.simulation()), before)


def check_learns(case: AlgorithmCase) -> None:
    """The state changes, and ten rounds lower the metric."""
    sim = case.simulation(rounds=10)
    before, after = sim.init(), world.run(sim)
    assert not equal(before, after)
    assert sim.test_metrics(10, after)[case.metric] < sim.test_metrics(0, before)[case.metric]


def check_bits(case: AlgorithmCase) -> None:
    """The bits of every link in every round equal the closed form."""
    if case.bits is None:
        return
    sim = case.simulation()
    state = sim.init()
    for index in range(3):
        ledger = Ledger()
        state, result = sim.round(index, state, ledger)
        wanted = case.bits(sim.model.dim, sim.model.num_stats, sim.model.layers, result.cohort.size)
        counters = ledger.counters()
        assert {link: counters[link] for link in wanted} == wanted


def check_idle_rows(case: AlgorithmCase) -> None:
    """Rows of idle clients in the state are unchanged."""
    sim = case.simulation()
    state = world.run(sim, last=2)
    new, result = sim.round(2, state, Ledger())
    idle = [client for client in range(world.NUM_CLIENTS) if client not in result.cohort.clients]
    after = flatten(new)
    for name, tensor in flatten(state).items():
        if tensor.dim() == 2 and tensor.shape[0] == world.NUM_CLIENTS:
            assert torch.equal(tensor[idle], after[name][idle]), name


def check_pure(case: AlgorithmCase) -> None:
    """A round does not modify the old state."""
    sim = case.simulation()
    state = world.run(sim, last=1)
    before = {name: tensor.clone() for name, tensor in flatten(state).items()}
    sim.round(1, state, Ledger())
    assert all(torch.equal(tensor, before[name]) for name, tensor in flatten(state).items())


def check_donate_state(case: AlgorithmCase) -> None:
    """Rounds that may overwrite the old state in place give the same state bit for bit."""
    sim = case.simulation()
    state, ledger = sim.init(), Ledger()
    for index in range(sim.rounds):
        state, _ = sim.round(index, state, ledger, donate_state=True)
    assert all(type(tensor) is torch.Tensor for tensor in flatten(state).values())
    assert equal(state, unbroken(case)[0])


def check_empty(case: AlgorithmCase) -> None:
    """A round with an empty cohort changes no state and sends no bits."""
    sim = case.simulation(participation=world.NOBODY)
    ledger = Ledger()
    state = world.run(sim, ledger=ledger)
    assert equal(state, sim.init())
    assert not any(ledger.counters().values())


def check_one_client(case: AlgorithmCase) -> None:
    """A world of one client with one sample."""
    sim = case.simulation(participation=world.FULL, sizes=(1,))
    state = world.run(sim)
    assert all(torch.isfinite(tensor).all() for tensor in flatten(state).values())


def check_zeros(case: AlgorithmCase) -> None:
    """Inputs that are all zero give no NaN."""
    sim = case.simulation(data=world.dataset(scale=0.0))
    state = world.run(sim)
    assert all(torch.isfinite(tensor).all() for tensor in flatten(state).values())
    assert sim.test_metrics(4, state)[case.metric] >= 0


CHECKS = (
    check_wire,
    check_chunks,
    check_resume,
    check_repeat,
    check_learns,
    check_bits,
    check_idle_rows,
    check_pure,
    check_donate_state,
    check_empty,
    check_one_client,
    check_zeros,
)


def conforms(case: AlgorithmCase, check: Callable[..., None], folder: Path) -> None:
    """Run one check on one case."""
    if check is check_resume:
        check(case, folder)
    elif check is check_empty and case.participation is world.FULL:
        pytest.skip("this method needs every client, so no round is empty")
    else:
        check(case)


def suite(cases: Sequence[AlgorithmCase]) -> Callable[..., None]:
    """A test of every case by every check; a test module assigns it to `test_algorithm`."""

    @pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test(case: AlgorithmCase, check: Callable[..., None], tmp_path: Path) -> None:
        conforms(case, check, tmp_path)

    return test
