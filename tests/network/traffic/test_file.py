"""Every method's legs, and `traffic.npz`: what is written is read, in few bytes; segments join; damage is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcomp.algorithm.bicompfl.bicompfl_cfl import BiCompFLCFL
from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bidirectional.cser import CSER
from fedcomp.algorithm.bidirectional.doublesqueeze import DoubleSqueeze
from fedcomp.algorithm.bidirectional.liec import LIEC
from fedcomp.algorithm.contract import Algorithm
from fedcomp.algorithm.fedscalar import FedScalar
from fedcomp.network.traffic import segments
from fedcomp.network.traffic.file import FILE, Traffic, joined, load, save
from fedcomp.network.traffic.rounds import Round, round_of
from fedcomp.wire import Ledger, WireLink
from fedcomp.wire.legs import BROADCAST, RELAY, UNICAST, UP, WORK, Leg, Legs
from tests.algorithm.conformance_cases import CASES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase
from tests.looped import looped
from tests.network.recorded import arrays, content, shape, sums, traffic_of
from tests.parts import Adam, Compressor, Dense, FedAvg, ServerSgd, Sgd, Sign


def _round(seed: int, num: int = 9) -> Round:
    """Legs of every kind, form and receiver."""
    rng = np.random.default_rng(seed)
    clients = tuple(range(num)) if seed % 3 else tuple(sorted(rng.choice(num, 4, replace=False).tolist()))
    size = len(clients)
    made = [
        Leg(BROADCAST, "all", 320),
        Leg(BROADCAST, (1, 5), rng.integers(1, 9, 1)),
        Leg(UNICAST, "cohort", 64),
        Leg(WORK, "cohort", rng.integers(1, 3 + (seed % 2) * 70_000, size)),
        Leg(UP, "cohort", rng.integers(1, 100, size)),
        Leg(UP, (2, 2, 3), rng.integers(0, 2, 3)),
        Leg(RELAY, "cohort", rng.integers(1, 100, size)),
    ]
    return round_of(Legs(clients, made[seed % 2 :] if seed != 4 else []), num)


def _same(one: Traffic, other: Traffic) -> bool:
    def plain(traffic: Traffic) -> list[object]:
        whole = [one for rounds in traffic.rounds for one in rounds]
        return [(one.template, one.clients, one.listed, [values.tolist() for values in one.varying]) for one in whole]

    return plain(one) == plain(other) and (one.num_clients, one.repeated) == (other.num_clients, other.repeated)


@pytest.mark.parametrize("repetitions", [1, 2])
def test_what_is_written_is_read(tmp_path: Path, repetitions: int) -> None:
    rounds = tuple(tuple(_round(seed + 9 * number) for seed in range(6)) for number in range(repetitions))
    traffic = Traffic(9, rounds, repetitions > 1)
    save(tmp_path / FILE, traffic)
    assert _same(load(tmp_path / FILE), traffic)
    assert content(load(tmp_path / FILE), tmp_path) == (tmp_path / FILE).read_bytes()


def _write_segments(folder: Path, ends: tuple[int, ...]) -> tuple[Round, ...]:
    """Segments that end with these rounds; the rounds of all."""
    rounds = tuple(_round(seed) for seed in range(ends[-1]))
    for first, last in zip((0, *ends), ends):
        segments.write_segment(folder, Traffic(9, (rounds[first:last],)), last)
    return rounds


@pytest.mark.parametrize("ends", [(10,), (1, 2, 3, 10), (5, 10)])
def test_segments_join_to_the_same_bytes_wherever_they_end(tmp_path: Path, ends: tuple[int, ...]) -> None:
    rounds = _write_segments(tmp_path, ends)
    segments.join(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).read_bytes() == content(Traffic(9, (rounds,)), tmp_path, "whole.npz")


@pytest.mark.parametrize(("gone", "missing"), [(0, 1), (1, 3)])
def test_segments_with_a_gap_are_refused(tmp_path: Path, gone: int, missing: int) -> None:
    _write_segments(tmp_path, (2, 4, 6))
    sorted(tmp_path.iterdir())[gone].unlink()
    with pytest.raises(ValueError, match=rf"has no traffic of round {missing}, but of later rounds: put the missing"):
        segments.join(tmp_path)
    says = rf"has no traffic of round {missing}, but the run was at round 6: put its traffic-\*.npz"
    with pytest.raises(ValueError, match=says):
        segments.resume(tmp_path, 6)
    assert len(list(tmp_path.iterdir())) == 2, "what is there is kept"


def test_a_resume_drops_what_is_later(tmp_path: Path) -> None:
    rounds = _write_segments(tmp_path, (2, 4, 6))
    found = segments.resume(tmp_path, 4)
    assert found is not None
    assert _same(found, Traffic(9, (rounds[:4],)))
    assert len(list(tmp_path.iterdir())) == 2
    assert segments.resume(tmp_path, 0) is None
    assert not list(tmp_path.iterdir())
    save(tmp_path / FILE, Traffic(9, (rounds,)))
    found = segments.resume(tmp_path, 3)  # the checkpoint of the end was lost
    assert found.num_rounds == 3
    assert [path.name for path in tmp_path.iterdir()] == ["traffic-0000001-0000003.npz"]


def test_sizes_of_a_thousand_rounds_of_a_thousand_clients(tmp_path: Path) -> None:
    rng, num = np.random.default_rng(0), 1000
    work = rng.integers(50, 2000, num)
    static = [Leg(BROADCAST, "cohort", 32 * 10**6), Leg(WORK, "cohort", work), Leg(UP, "cohort", 10**6)]
    one = round_of(Legs(tuple(range(num)), static), num)
    assert len(content(Traffic(num, ((one,) * 1000,)), tmp_path)) < 8_000
    made = [static[0], Leg(WORK, "cohort", np.full(100, 64)), static[2]]
    drawn = [tuple(sorted(rng.choice(num, 100, replace=False).tolist())) for _ in range(1000)]
    some = tuple(round_of(Legs(clients, made), num) for clients in drawn)
    assert len(content(Traffic(num, (some,)), tmp_path)) < 80_000


def test_a_varying_leg_is_kept_in_two_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for most, kind in ((1200, np.uint16), (2**16 - 1, np.uint16), (2**16, np.uint32), (2**32, np.uint64)):
        ups = [Leg(UP, "cohort", 10**9 + np.array([0, most, rng.integers(0, most)])) for _ in range(4)]
        traffic = Traffic(3, (tuple(round_of(Legs((0, 1, 2), [up]), 3) for up in ups),))
        save(tmp_path / FILE, traffic)
        assert arrays(tmp_path / FILE)["vary_delta"].dtype == kind
        assert _same(load(tmp_path / FILE), traffic)


def test_messages_of_one_phase_are_added_up() -> None:
    ups = [Leg(UP, "cohort", amount) for amount in (3, 4, np.array([1, 2]))]
    one = round_of(Legs((0, 1), [*ups, Leg(WORK, "cohort", np.zeros(2))]), 2)
    assert len(one.template) == 1
    assert one.varying[0].tolist() == [8, 9]


def test_damage_and_other_versions(tmp_path: Path) -> None:
    path = tmp_path / FILE
    traffic = Traffic(9, ((_round(1),),))
    save(path, traffic)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ValueError, match=r"is damaged: run again with overwrite=true"):
        load(path)
    save(path, traffic)
    changed = arrays(path) | {"version": np.int32(7)}
    np.savez(path, **changed)
    with pytest.raises(ValueError, match=r"is of version 7, not 1"):
        load(path)
    with pytest.raises(ValueError, match=r"has no traffic.npz, from which times follow: only runs with a network"):
        segments.read_traffic(tmp_path / "nothing")


def test_joining_keeps_repetitions_apart() -> None:
    one, other = Traffic(9, ((_round(1),), (_round(2),)), True), Traffic(9, ((_round(3),), (_round(5),)), True)
    assert [len(rounds) for rounds in joined([one, other]).rounds] == [2, 2]


SGD, STEP, DENSE, SIGN = Sgd(lr=0.1, batch_size=4), ServerSgd(), Compressor(Dense()), Compressor(Sign())
MASKS = Adam(lr=0.1, batch_size=4)
TWICE = ["w ↑ | ↓", "w ↑ | ↓ ↑ | ↓"] * 2


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_methods_legs_sum_up_to_the_ledger(case: AlgorithmCase, tmp_path: Path) -> None:
    traffic, ledger = traffic_of(world.in_float64(case.simulation()))
    counters = ledger.counters()
    assert sums(traffic) == {name: counters[name] for name in ("uplink", "downlink", "broadcast", "gradients")}
    small, _ = traffic_of(world.in_float64(case.simulation(link=WireLink, chunk_size=2)))
    assert content(small, tmp_path) == content(traffic, tmp_path)
    if not case.algorithm.full_participation:
        again = any(shape(one).count("↑") > 1 for one in traffic.rounds[0])
        assert case.algorithm.several_uplinks == again


@looped(
    "algorithm, module, wanted",
    [
        (FedAvg(SGD, STEP, DENSE, DENSE), world.with_batch_norm, ["↓ w ↑"] * 4),
        (FedAvg(SGD, STEP, SIGN, SIGN), world.with_batch_norm, ["w ↑ | ↓"] * 4),
        (DoubleSqueeze(SGD, STEP, SIGN, SIGN), world.mlp, ["w ↑ | ↓"] * 4),
        (FedScalar(SGD, sends="scalar"), world.with_batch_norm, ["↓ w ↑"] * 4),
        (CSER(SGD, STEP, SIGN, SIGN, period=2), world.mlp, TWICE),
        (LIEC(SGD, STEP, SIGN, SIGN, period=2, fused_average=False), world.with_batch_norm, TWICE),
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
