"""Late clients: times, chances, weights, and a round that goes on as if they had not taken part."""

from typing import Any

import numpy as np
import pytest
import torch

from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.core.cohort import Cohort, Everyone, Listed
from fedcomp.network.clock import Clock
from fedcomp.network.deadline import Deadline, on_time_probability
from fedcomp.network.exchanges import exchanges
from fedcomp.network.links.fixed import FixedLinks
from fedcomp.network.traffic.recorder import RecordedRepetition, TrafficRecorder
from fedcomp.network.traffic.rounds import round_of
from fedcomp.random.keys import Key
from fedcomp.wire import Field, Ledger, Link, Payload
from fedcomp.wire.coding import Elias
from fedcomp.wire.legs import BROADCAST, UNICAST, UP, WORK, Leg, Legs, RoundLog
from tests.conformance import world
from tests.looped import looped
from tests.network.two_clients import Given, clock
from tests.parts import QSGD, Adam, Compressor, Dense, ErrorFeedback, FedAvg, ServerSgd, Sgd, TopK

COHORT = Cohort.of((0, 1), torch.full((2,), 0.5))


def _first_exchange() -> Legs:
    down, work = Leg(BROADCAST, "cohort", 2_000_000), Leg(WORK, "cohort", 100)
    return Legs((0, 1), [down, work, Leg(UP, "cohort", np.array([500_000, 1_000_000]))])


@looped(
    "deadline, late, seconds, wait",
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
    rates = tuple((np.inf, rate, 0, 0.005) for rate in (1, 2, 4))
    network = Given(rates=rates, deadline=DEADLINE, jitter=JITTER, deadline_weights=weights)
    one = Clock(network, network.links(3), Key(("run", 0)))
    deadline, cohort = Deadline(one, np.ones(3)), Cohort.of((0, 1, 2), torch.full((3,), 1 / 3))
    found = []
    for _ in range(num):
        legs = Legs((0, 1, 2), [Leg(WORK, "cohort", 100), Leg(UP, "cohort", 2_000_000)])
        chosen = deadline.decide(cohort, legs)
        found.append(sum(weight * (client + 1) for client, weight in zip(chosen.clients, chosen.weight.tolist())))
        one.rounds += 1
    return np.array(found)


@pytest.mark.thorough
def test_inverse_weights_are_unbiased_and_the_others_are_not() -> None:
    num = 3000
    for weights, mean in (("inverse", 2.0), ("renormalise", 2.426), ("lost", 1.608)):
        found = _aggregates(weights, num)
        if weights == "renormalise":
            found = found[found > 0]
        error = found.std() / np.sqrt(len(found))
        assert abs(found.mean() - mean) < 4 * error
        assert (abs(found.mean() - 2) > 10 * error) == (weights != "inverse")


def test_the_largest_inverse_weight_is_one_that_was_used() -> None:
    """Client 0 still receives what was sent after the first round: it cannot be on time in the second."""
    one = clock(deadline=1.5, jitter=0.1, deadline_weights="inverse")
    half = np.full(2, 0.5)  # each takes part in every second round
    deadline, resumed, weights = Deadline(one, half), Deadline(one, half), [0.0]
    for late in ([False, False], [True, False]):
        legs = Legs((0, 1), [Leg(UP, "cohort", 100_000), Leg(BROADCAST, "cohort", 19_000_000)])
        weights += deadline.decide(COHORT, legs).weight.tolist()
        assert legs.late is not None
        assert legs.late.tolist() == late
        resumed.remember(round_of(legs, 2))
        one.advance(round_of(legs, 2))
    assert deadline.max_inverse == pytest.approx(max(weights) / 0.5 / 0.5)
    assert resumed.metrics() == deadline.metrics()


TOPK = Compressor(TopK(0.4), ErrorFeedback())


def _deadline(network: Any, num: int) -> tuple[Deadline, TrafficRecorder, Ledger]:
    one = Clock(network, network.links(num), Key(("run", 0)))
    deadline, ledger = Deadline(one, np.ones(num)), Ledger()
    recorder = TrafficRecorder(num, [RecordedRepetition(one, deadline)])
    recorder.attach(ledger)
    return deadline, recorder, ledger


def test_late_clients_leave_no_trace_but_their_bits() -> None:
    """As a round of the others alone: model, memories; the ledger has everybody's bits and gradients."""
    algorithm = FedAvg(Sgd(lr=0.1, batch_size=4), ServerSgd(), TOPK, Compressor(Dense()))
    simulation = world.simulation(algorithm, participation=world.FULL)
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
    wanted, _ = simulation.attempt(0, start, Cohort(kept, weight, (0, 2, 3, 5, 6)), alone)
    assert torch.equal(state.theta, wanted.theta)
    assert torch.equal(state.uplink.sender, wanted.uplink.sender)
    assert not state.uplink.sender[[1, 4]].any()
    assert state.uplink.sender[[0, 2]].any()
    whole = Ledger()
    simulation.round(0, start, whole)
    assert ledger.counters() == whole.counters()
    assert recorder.follow() == []
    assert recorder.metrics()["deadline/late"] == 2 / 7


RATES = tuple((np.inf, 1e-5 if client in (1, 4) else 1.0, 0, 0) for client in range(world.NUM_CLIENTS))
ON_TIME = (0, 2, 3, 5, 6)
STEP_DOWN = FedAvg(Sgd(lr=0.1, batch_size=4), ServerSgd(), TOPK, Compressor(QSGD(levels=50, coding="elias")))


@looped("algorithm", [STEP_DOWN, BiCompFLPR(client=Adam(lr=0.1, batch_size=4), block=16)])
def test_the_server_answers_those_on_time(algorithm: Any) -> None:
    """Bits down are those of the answers that are sent, whose length depends on the data, or to each client."""
    simulation = world.simulation(algorithm, participation=world.FULL)
    _, recorder, ledger = _deadline(Given(rates=RATES, deadline=1.0), world.NUM_CLIENTS)
    start = simulation.init()
    _, result = simulation.round(0, start, ledger)
    assert result.cohort.clients == ON_TIME
    alone, whole = Ledger(), Ledger()
    simulation.attempt(0, start, result.cohort, alone)
    simulation.round(0, start, whole)
    links = ("downlink", "broadcast", "paper/downlink")
    counted, wanted, before = ledger.counters(), alone.counters(), whole.counters()
    assert [counted[link] for link in links] == [wanted[link] for link in links]
    assert counted["downlink"] != before["downlink"]
    assert all(counted[name] == before[name] for name in ("uplink", "gradients", "receiver_rounds"))
    (one,) = recorder.take_segment().rounds[0]
    found = exchanges(one, world.NUM_CLIENTS, multicast=False)
    assert sum(each.down.sum() for each in found) == counted["downlink"]
    assert sum(each.up.sum() for each in found) == counted["uplink"]


def _coded(*numbers: int) -> Payload:
    """Messages of a number each, whose lengths depend on them."""
    return Payload({"number": Field(torch.tensor(numbers)[:, None], Elias())})


def _until_heard(cohort: Cohort, ledger: Ledger) -> Link:
    """In a round that has begun the clients have been sent something, and have sent their messages."""
    ledger.log = RoundLog(deadline=Deadline(clock(deadline=1.0), np.ones(9)))
    ledger.begin_round(cohort)
    link = Link(ledger)
    link.broadcast(_coded(30), cohort)
    link.up(_coded(*cohort.clients))
    return link


def test_answers_to_those_on_time_take_the_place_of_those_to_all() -> None:
    everybody, on_time = (Cohort.of(clients, torch.ones(len(clients))) for clients in ((1, 3, 5), (1, 5)))
    ledger, again, wanted = Ledger(), Ledger(), Ledger()
    for one in (ledger, wanted):
        _until_heard(everybody, one)  # an earlier round
    _until_heard(everybody, ledger).broadcast(_coded(77), Everyone(9))
    answers = _until_heard(on_time, again), _until_heard(everybody, wanted)
    wanted.num_in_cohort = 2  # whom it answers
    for link in answers:
        link.broadcast(_coded(12), Listed(tuple(range(7))))
        link.unicast(_coded(2, 900))
    ledger.answer_as(again)
    assert ledger.counters() == wanted.counters()
    assert ledger.counters()["receiver_rounds"] == 3 + 7
    assert ledger.legs is not None
    kinds = [(leg.kind, leg.who) for leg in ledger.legs.made]
    assert kinds == [(BROADCAST, "cohort"), (UP, "cohort"), (BROADCAST, tuple(range(7))), (UNICAST, on_time.clients)]


def test_a_server_that_heard_nobody_answers_nothing() -> None:
    simulation = world.simulation(STEP_DOWN, participation=world.FULL)
    _, _, ledger = _deadline(FixedLinks(down_bps=1e9, up_bps=1.0, deadline=1.0), world.NUM_CLIENTS)
    simulation.round(0, simulation.init(), ledger)
    assert ledger.counters()["uplink"] > 0
    assert ledger.counters()["downlink"] == 0
    assert ledger.counters()["receiver_rounds"] == world.NUM_CLIENTS


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


@looped("weights", ["renormalise", "inverse", "lost"])
@looped("cohort", [Cohort.of((), torch.zeros(0)), COHORT])
def test_a_round_in_which_nobody_sends(weights: str, cohort: Cohort) -> None:
    deadline, legs = Deadline(clock(deadline=2.0, deadline_weights=weights), np.ones(2)), Legs(cohort.clients)
    assert deadline.decide(cohort, legs) is cohort
    assert legs.late is not None
    assert legs.late.tolist() == [False] * cohort.size


@looped(
    "legs, options, says",
    [
        ([Leg(UP, "cohort", 9), Leg(BROADCAST, "cohort", 9), Leg(UP, "cohort", 9)], {}, "has 2: leave"),
        ([Leg(UP, "cohort", torch.tensor([8, 9]))], {"deadline_weights": "inverse"}, "depends on the data"),
        ([Leg(UP, "cohort", 9_000_000)], {"deadline_weights": "inverse"}, "client 0 never meets network.deadline=1"),
    ],
)
def test_methods_and_weights_that_do_not_fit(legs: list[Leg], options: dict[str, Any], says: str) -> None:
    deadline = Deadline(clock(deadline=1.0, **options), np.ones(2))
    with pytest.raises(ValueError, match=says):
        deadline.decide(COHORT, Legs((0, 1), legs))


def test_inverse_weights_look_at_clients_that_are_not_drawn() -> None:
    network = Given(rates=((10, 10, 0, 0), (10, 1e-3, 0, 0)), deadline=1.0, deadline_weights="inverse")
    deadline = Deadline(Clock(network, network.links(2), Key(("run", 0))), np.ones(2))
    alone = Cohort.of((0,), torch.ones(1))
    with pytest.raises(ValueError, match=r"client 1 never meets network.deadline=1.0"):
        deadline.decide(alone, Legs((0,), [Leg(WORK, "cohort", np.array([7])), Leg(UP, "cohort", 1_000_000)]))
