"""Late clients: times, chances, weights, and a round that goes on as if they had not taken part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.core.cohort import Cohort
from fedcomp.network.clock import Clock
from fedcomp.network.deadline import Deadline, on_time_probability
from fedcomp.network.links.fixed import FixedLinks
from fedcomp.network.traffic.file import FILE, load
from fedcomp.network.traffic.recorder import RecordedRepetition, TrafficRecorder
from fedcomp.network.traffic.rounds import Round, round_of
from fedcomp.random.keys import Key
from fedcomp.records.metrics_file import read_lines
from fedcomp.records.repetitions import read_repetitions
from fedcomp.replay.__main__ import main
from fedcomp.server.sgd import Sgd as ServerSgd
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy
from fedcomp.wire import Ledger
from fedcomp.wire.legs import BROADCAST, UP, WORK, Leg, Legs
from tests.conformance import world
from tests.network.two_clients import Given, clock

SMALL = (
    "rounds=6",
    "num_clients=4",
    "threads=1",
    "eval_every=2",
    "quiet=true",
    "model.hidden=[3]",
    "client.batch_size=40",
)


COHORT = Cohort.of((0, 1), torch.full((2,), 0.5))


def _first_exchange() -> Legs:
    made = [
        Leg(BROADCAST, "cohort", 2_000_000),
        Leg(WORK, "cohort", 100),
        Leg(UP, "cohort", np.array([500_000, 1_000_000])),
    ]
    return Legs((0, 1), made)


@pytest.mark.parametrize(
    ("deadline", "late", "seconds", "wait"),
    [(0.7, [True, False], 0.7, 0.11), (0.9, [False] * 2, 0.9, 0), (0.5, [True] * 2, 0.5, 0.5)],
)
def test_a_round_with_late_clients(deadline: float, late: list[bool], seconds: float, wait: float) -> None:
    one, legs = clock(deadline=deadline), _first_exchange()
    chosen = Deadline(one, np.ones(2)).decide(COHORT, legs)
    assert chosen.clients == tuple(client for client in (0, 1) if not late[client])
    assert legs.late is not None
    assert legs.late.tolist() == late
    one.advance(round_of(legs, 2))
    assert one.server == pytest.approx(seconds, rel=1e-12)
    line = one.metrics()
    assert line["time/wait"] == pytest.approx(wait, abs=1e-12)
    assert sum(line[f"time/{name}"] for name in ("downlink", "compute", "uplink", "wait")) == pytest.approx(seconds)
    assert all(one.ready[late] == one.server)


A, B, DEADLINE, JITTER = 0.5, np.array([2.0, 1.0, 0.5]), 2.0, 0.5
CHANCES = (0.282523, 0.791297, 0.985998)


def test_chances_by_hand_and_by_draws() -> None:
    chances = on_time_probability(np.full(3, A), B, DEADLINE, JITTER)
    assert chances == pytest.approx(CHANCES, abs=1e-6)
    assert 1 / (3 * chances) == pytest.approx((1.179847, 0.421249, 0.338067), abs=1e-6)
    assert ((1 / chances - 1) / 9).sum() == pytest.approx(0.313054, abs=1e-6)
    assert np.prod(1 - chances) == pytest.approx(0.002097, abs=1e-6)
    factor = np.exp(JITTER * Key(("draws",)).normal(torch.arange(100_000), 3).double().numpy())
    found = (A + B / factor <= DEADLINE).mean(0)
    assert (np.abs(found - chances) < 4 * np.sqrt(chances * (1 - chances) / 100_000)).all()
    assert on_time_probability(np.array([2.0, 2.5, 1.0]), np.ones(3), 2.0, 0.5).tolist()[:2] == [0, 0]
    assert on_time_probability(np.array([0.5, 1.5]), np.ones(2), 1.5, 0).tolist() == [1, 0]


def _aggregates(weights: str, num: int) -> np.ndarray:
    """Means of the changes 1, 2, 3 in rounds of three clients; 0 where nobody is on time."""
    network = Given(
        rates=tuple((np.inf, rate, 0, 0.005) for rate in (1, 2, 4)),
        deadline=DEADLINE,
        jitter=JITTER,
        deadline_weights=weights,
    )
    one = Clock(network, network.links(3), Key(("run", 0)))
    deadline, cohort = Deadline(one, np.ones(3)), Cohort.of((0, 1, 2), torch.full((3,), 1 / 3))
    found = []
    for _ in range(num):
        legs = Legs((0, 1, 2), [Leg(WORK, "cohort", 100), Leg(UP, "cohort", 2_000_000)])
        chosen = deadline.decide(cohort, legs)
        found.append(sum(weight * (client + 1) for client, weight in zip(chosen.clients, chosen.weight.tolist())))
        one.rounds += 1
    return np.array(found)


def test_inverse_weights_are_unbiased_and_the_others_are_not() -> None:
    num = 3000
    for weights, mean in (("inverse", 2.0), ("renormalise", 2.426), ("lost", 1.608)):
        found = _aggregates(weights, num)
        if weights == "renormalise":
            found = found[found > 0]
        error = found.std() / np.sqrt(len(found))
        assert abs(found.mean() - mean) < 4 * error
        assert (abs(found.mean() - 2) > 10 * error) == (weights != "inverse")


TOPK = Compressor(TopK(0.4), ErrorFeedback())
LINKS = {"down_bps": np.inf, "rtt_s": 0.0}


def _deadline(network: Any, num: int) -> tuple[Deadline, TrafficRecorder, Ledger]:
    one = Clock(network, network.links(num), Key(("run", 0)))
    deadline, ledger = Deadline(one, np.ones(num)), Ledger()
    recorder = TrafficRecorder(num, [RecordedRepetition(one, deadline)])
    recorder.attach(ledger)
    return deadline, recorder, ledger


def test_late_clients_leave_no_trace_but_their_bits() -> None:
    """As a round of the others alone: model, memories; the ledger has everybody's bits and gradients."""
    simulation = world.simulation(
        FedAvg(Sgd(lr=0.1, batch_size=4), ServerSgd(), TOPK, Compressor(Dense())), participation=world.FULL
    )
    num = world.NUM_CLIENTS
    rates = tuple((np.inf, 1e-5 if client in (1, 4) else 1.0, 0, 0) for client in range(num))
    network = Given(rates=rates, deadline=1.0)
    _, recorder, ledger = _deadline(network, num)
    start = simulation.init()
    state, result = simulation.round(0, start, ledger)
    assert result.cohort.clients == (0, 2, 3, 5, 6)
    alone = Ledger()
    before = simulation.cohort(0)
    kept = torch.tensor([0, 2, 3, 5, 6])
    weight = before.weight[kept] * (before.weight.sum() / before.weight[kept].sum())
    wanted, _ = simulation._attempt(0, start, Cohort(kept, weight, (0, 2, 3, 5, 6)), alone)
    assert torch.equal(state.theta, wanted.theta)
    assert torch.equal(state.uplink.sender, wanted.uplink.sender)
    assert not state.uplink.sender[[1, 4]].any()
    assert state.uplink.sender[[0, 2]].any()
    whole = Ledger()
    simulation.round(0, start, whole)
    assert ledger.counters() == whole.counters()
    assert recorder.follow() == []
    assert recorder.metrics()["deadline/late"] == 2 / 7


def test_a_deadline_that_nobody_meets_is_said_once_and_rounds_go_on() -> None:
    simulation = world.simulation(FedAvg(Sgd(lr=0.1, batch_size=4), ServerSgd(), TOPK, Compressor(Dense())))
    _, recorder, ledger = _deadline(FixedLinks(down_bps=1e3, up_bps=1e3, deadline=1e-3), world.NUM_CLIENTS)
    start = simulation.init()
    state, result = simulation.round(0, start, ledger)
    assert result.cohort.size == 0
    assert state is start
    (text,) = recorder.follow()
    assert "nobody met network.deadline=0.001 in round 1: the fastest client" in text
    simulation.round(1, state, ledger)
    assert recorder.follow() == []
    assert recorder.metrics()["time/total"] == pytest.approx(2e-3)
    assert recorder.metrics()["deadline/late"] == 1


@pytest.mark.parametrize(
    ("legs", "options", "says"),
    [
        ([Leg(UP, "cohort", 9), Leg(BROADCAST, "cohort", 9), Leg(UP, "cohort", 9)], {}, "has 2: leave"),
        ([Leg(UP, "cohort", torch.tensor([8, 9]))], {"deadline_weights": "inverse"}, "depends on the data"),
        ([Leg(UP, "cohort", 9_000_000)], {"deadline_weights": "inverse"}, "client 0 never meets network.deadline=1"),
    ],
)  # fmt: skip
def test_methods_and_weights_that_do_not_fit(legs: list[Leg], options: dict[str, Any], says: str) -> None:
    deadline = Deadline(clock(deadline=1.0, **options), np.ones(2))
    with pytest.raises(ValueError, match=says):
        deadline.decide(COHORT, Legs((0, 1), legs))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("algorithm=bicompfl_gr",), "algorithm=bicompfl_gr needs every client in every round"),
        (("algorithm=powersgd", "algorithm.rank=1"), "the clients of algorithm=powersgd send again after the server's"),
        (("algorithm=tamuna", "algorithm.p=0.5"), "algorithm=tamuna needs as many clients in every round"),
        (("network.deadline_weights=inverse", "compressor=topk", "compressor.positions=rice"), "depends on the data"),
        (("network.deadline_weights=inverse", "network.rtt_s=2.1"), "client 0 never meets network.deadline=1.0"),
        (("network.deadline_weights=inverse", "network.down=multicast"), "is not for network.down=multicast"),
        (("network.capacity_bps=1e6",), "is not for cells"),
        (("network.deadline=0",), "network.deadline=0 must be above 0"),
    ],
)
def test_runs_that_cannot_have_one(
    fedcomp: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    says: str,
) -> None:
    def no_round(*_: object, **__: object) -> None:
        raise AssertionError("refused too late")

    monkeypatch.setattr("fedcomp.simulation.simulation.Simulation.round", no_round)
    assert fedcomp(*SMALL, "network=fixed", "network.deadline=1.0", *options) != 0
    assert says in capsys.readouterr().err


def test_inverse_weights_look_at_clients_that_are_not_drawn() -> None:
    network = Given(rates=((10, 10, 0, 0), (10, 1e-3, 0, 0)), deadline=1.0, deadline_weights="inverse")
    deadline = Deadline(Clock(network, network.links(2), Key(("run", 0))), np.ones(2))
    alone = Cohort.of((0,), torch.ones(1))
    with pytest.raises(ValueError, match=r"client 1 never meets network.deadline=1.0"):
        deadline.decide(alone, Legs((0,), [Leg(WORK, "cohort", np.array([7])), Leg(UP, "cohort", 1_000_000)]))


def test_each_repetition_of_a_study_has_its_own_late_clients(
    fedcomp: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Repetition 0 is the run without `repeats`; an interrupted study ends as an unbroken one."""
    options = (*SMALL, "network=fixed", "network.up_bps=1e4", "network.rtt_s=0", "network.jitter=0.5")
    options = (*options, "network.deadline=0.8", "partition.seed=1", f"output_root={tmp_path}")
    assert fedcomp(*options, "name=alone") == 0
    assert fedcomp(*options, "name=study", "repeats=2") == 0
    (alone,), (study,) = ([path.parent for path in (tmp_path / name).rglob(FILE)] for name in ("alone", "study"))
    first, both = load(alone / FILE), load(study / FILE)
    assert both.deadline == 0.8
    late = [[tuple((~one.on_time).tolist()) for one in rounds] for rounds in (*first.rounds, *both.rounds)]
    assert late[0] == late[1] != late[2]
    assert any(any(one) for one in late[0])
    own = [line["test/loss"] for line in read_lines(alone / "metrics.jsonl")]
    assert [each["test/loss"][0] for each in read_repetitions(study).values()] == pytest.approx(own, rel=1e-6)
    last = read_lines(study / "metrics.jsonl")[-1]
    assert last["deadline/late"] == np.mean([np.mean(rounds) for rounds in late[1:]])
    found = (study / FILE).read_bytes(), (study / "repetitions.jsonl").read_bytes()

    plain = MonteCarloStudy.round

    def broken(self: MonteCarloStudy, index: int, *rest: Any, **more: Any) -> Any:
        if index == 3:
            raise ValueError("stopped")
        return plain(self, index, *rest, **more)

    resumed = (*options, "name=resumed", "repeats=2", "checkpoint_every=1")
    with monkeypatch.context() as patch:
        patch.setattr(MonteCarloStudy, "round", broken)
        assert fedcomp(*resumed) != 0
    assert fedcomp(*resumed) == 0
    (again,) = (path.parent for path in (tmp_path / "resumed").rglob(FILE))
    assert ((again / FILE).read_bytes(), (again / "repetitions.jsonl").read_bytes()) == found
    assert read_lines(again / "metrics.jsonl")[-1]["deadline/late"] == last["deadline/late"]


def test_a_repetition_in_which_nobody_is_on_time_is_named(
    fedcomp: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("network=fixed", "network.deadline=1e-6", "repeats=2", f"output_root={tmp_path}")
    assert fedcomp(*SMALL[:-1], *options, "quiet=false") == 0
    shown = capsys.readouterr()
    for number in (0, 1):
        assert f"repetition {number}: nobody met network.deadline=1e-06 in round 1" in shown.out + shown.err


def test_a_run_with_a_deadline_resumes_and_cannot_be_replayed(
    fedcomp: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedcomp.simulation.simulation import Simulation

    options = (
        *SMALL,
        "network=lognormal",
        "network.down_bps=inf",
        "network.up_bps=1e4",
        "network.rtt_s=0",
        "network.deadline=0.012",
        "network.jitter=0.5",
        "compressor=topk",
        "compressor.feedback=error",
    )
    assert fedcomp(*options, f"output_root={tmp_path / 'whole'}") == 0
    plain = Simulation.round

    def broken(self: Simulation, index: int, *rest: Any, **more: Any) -> Any:
        if index == 3:
            raise ValueError("stopped")
        return plain(self, index, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "round", broken)
        assert fedcomp(*options, "checkpoint_every=1", f"output_root={tmp_path / 'parts'}") != 0
    assert fedcomp(*options, "checkpoint_every=1", f"output_root={tmp_path / 'parts'}") == 0
    found = []
    for name in ("whole", "parts"):
        (record,) = (tmp_path / name).rglob("metrics.jsonl")
        lines = [{key: value for key, value in line.items() if key != "seconds"} for line in read_lines(record)]
        found.append((lines, record.with_name(FILE).read_bytes()))
    assert found[0] == found[1]
    lines = found[0][0]
    assert 0 < lines[-1]["deadline/late"] < 1
    assert [line.get("deadline/unbiased") for line in lines] == [0, None, None, None]
    traffic = load(next((tmp_path / "whole").rglob(FILE)))
    assert traffic.deadline == 0.012
    assert any(
        isinstance(one, Round) and one.on_time is not None and not one.on_time.all() for one in traffic.rounds[0]
    )
    assert main([str(tmp_path / "whole"), "network=lte"]) == 1
    assert "had network.deadline=0.012, which changed who learnt" in capsys.readouterr().err
