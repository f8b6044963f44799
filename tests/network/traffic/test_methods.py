"""Every method's legs: their sums are the ledger's, whoever computes them, and their order makes the exchanges."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.fedscalar import FedScalar
from fedcomp.wire import Ledger, WireLink
from tests.algorithm.conformance_cases import CASES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase
from tests.looped import looped
from tests.network.recorded import content, shape, sums, traffic_of
from tests.parts import Adam, Compressor, Dense, FedAvg, ServerSgd, Sgd, Sign

SGD, STEP, DENSE, SIGN = Sgd(lr=0.1, batch_size=4), ServerSgd(), Compressor(Dense()), Compressor(Sign())
MASKS = Adam(lr=0.1, batch_size=4)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_methods_legs_sum_up_to_the_ledger(case: AlgorithmCase, tmp_path: Path) -> None:
    traffic, ledger = traffic_of(case.simulation())
    counters = ledger.counters()
    assert sums(traffic) == {name: counters[name] for name in ("uplink", "downlink", "broadcast", "gradients")}
    small, _ = traffic_of(world.in_float64(case.simulation(link=WireLink, chunk_size=2)))
    whole, _ = traffic_of(world.in_float64(case.simulation()))
    assert content(small, tmp_path) == content(whole, tmp_path)
    algorithm = case.simulation().algorithm
    if not algorithm.full_participation:
        again = any(shape(one).count("↑") > 1 for one in traffic.rounds[0])
        assert algorithm.several_uplinks == again


@looped(
    "algorithm, module, wanted",
    [
        (FedAvg(SGD, STEP, DENSE, DENSE), world.with_batch_norm, ["↓ w ↑"] * 4),
        (FedAvg(SGD, STEP, SIGN, SIGN), world.with_batch_norm, ["w ↑ | ↓"] * 4),
        (DoubleSqueeze(SGD, STEP, SIGN, SIGN), world.mlp, ["w ↑ | ↓"] * 4),
        (FedScalar(SGD, sends="scalar"), world.with_batch_norm, ["↓ w ↑"] * 4),
        (CSER(SGD, STEP, SIGN, SIGN, period=2), world.mlp, ["w ↑ | ↓", "w ↑ | ↓ ↑ | ↓"] * 2),
        (
            LIEC(SGD, STEP, SIGN, SIGN, period=2, fused_average=False),
            world.with_batch_norm,
            ["w ↑ | ↓", "w ↑ | ↓ ↑ | ↓"] * 2,
        ),
        (BiCompFLGR(client=MASKS, block=16), world.with_batch_norm, ["↓ w ↑ | ↓"] * 4),
        (BiCompFLGR(client=MASKS, block=16, reconstruct=True), world.mlp, ["w ↑ | ↓"] * 4),
        (BiCompFLCFL(SGD, STEP, SIGN), world.with_batch_norm, ["↓ w ↑ | ↓"] * 4),
    ],
)
def test_the_exchanges_of_a_round(algorithm: Algorithm, module: Any, wanted: list[str]) -> None:
    simulation = world.simulation(algorithm, module, world.FULL)
    traffic, _ = traffic_of(simulation)
    assert [shape(one) for one in traffic.rounds[0]] == wanted


def test_new_blocks_are_an_exchange_more() -> None:
    algorithm = BiCompFLGR(client=MASKS, block=4, allocation="adaptive", longest=64)
    traffic, _ = traffic_of(world.simulation(algorithm, participation=world.FULL, rounds=12))
    found = {shape(one) for one in traffic.rounds[0]}
    assert found == {"w ↑ | ↓ ↑ | ↓", "w ↑ | ↓ ↑ | ↓ ↑ | ↓"}


def test_a_round_without_clients_is_empty() -> None:
    traffic, _ = traffic_of(world.simulation(FedAvg(SGD, STEP, DENSE, DENSE), participation=world.NOBODY))
    assert all(one.template == () and one.clients == () for one in traffic.rounds[0])


def test_no_log_no_legs() -> None:
    ledger, simulation = Ledger(), world.simulation(FedAvg(SGD, STEP, DENSE, DENSE))
    simulation.round(0, simulation.init(), ledger)
    assert ledger.legs is ledger.log is None
    assert replace(simulation.clients(simulation.key, ledger)).count_each is None
