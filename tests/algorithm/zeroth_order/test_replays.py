"""DeComFL's clients who were away repeat the server's steps from scalars and seeds, bit for bit."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedcomp.algorithm.zeroth_order.decomfl import DeComFL
from fedcomp.algorithm.zeroth_order.fedkseed import FedKSeed
from fedcomp.algorithm.zeroth_order.history import Step
from fedcomp.compressor.seed import seed_number
from fedcomp.simulation.divergence import Diverged, DivergenceMonitor
from fedcomp.wire import Ledger
from tests.algorithm.heterogeneous import D, problem
from tests.algorithm.zeroth_order.objectives import NotingLink, cohort_of, context, first_state
from tests.conformance import world
from tests.looped import looped

STAGES = {5: [0.5, 2], 9: [0.25, 4]}
COHORTS = ((0, 1), (1, 2), (0, 3), (0, 1), (2, 3), (1, 4), (0, 2), (2, 4), (0, 4), (1, 3), (0, 1), (2, 5))
"""Client 5 comes for the first time in the last of twelve rounds."""


class Client:
    """Keeps the model of its last round and that round's seeds, and repeats what it is sent."""

    def __init__(self, algorithm: DeComFL, state) -> None:
        self.algorithm, self.place = algorithm, (state.theta, state.velocity)
        self.since, self.seeds = 0, torch.zeros(0, dtype=torch.int64)

    def repeat(self, payload, index: int) -> int:
        """Catches up until round `index`; the number of scalars it was sent."""
        words = payload.fields["seed"].data if "seed" in payload.fields else torch.zeros(1, 0, dtype=torch.int64)
        seeds = torch.cat((self.seeds, seed_number(words.view(-1, 2))))
        scalars, at = payload.fields["scalars"].data[0], 0
        for number in range(self.since, index):
            lr, num = self.algorithm.size_and_number((number, 100))
            steps = self.algorithm.steps
            part = scalars[at : at + steps * num].view(steps, num)
            self.place = self.algorithm.walk(self.place, Step(part, seeds[:steps], lr))
            seeds, at = seeds[steps:], at + steps * num
        assert at == len(scalars)
        assert not len(seeds)
        return at


@looped("seed", ["sent", "derived"])
def test_clients_who_were_away_repeat_the_servers_steps_bit_for_bit(seed: str) -> None:
    """N = 6, m = 2, twelve rounds, changing eta and P, momentum: from the messages' bytes alone."""
    clients = problem()
    moving = {"lr": 0.01, "momentum": 0.5, "weight_decay": 0.01, "stages": STAGES, "schedule": "cosine"}
    algorithm = DeComFL(steps=2, perturbations=3, seed_cost=seed, **moving)
    state = first_state(algorithm, clients)
    them, sent = [Client(algorithm, state) for _ in range(6)], [0] * 6
    made: list[torch.Tensor] = []  # seeds of every round, which clients derive if they are not sent
    for index, chosen in enumerate(COHORTS):
        link = NotingLink(Ledger())
        before = state
        state, _ = algorithm.round(state, cohort_of(*chosen), context(clients, index, link))
        for client in chosen:
            messages = [one for who, one in link.broadcasts if client in who and "scalars" in one.fields]
            assert len(messages) == (index > 0)
            if seed == "derived" and messages:
                them[client].seeds = torch.cat(made[them[client].since : index])
            for message in messages:
                sent[client] += them[client].repeat(message, index)
            assert all(map(torch.equal, them[client].place, (before.theta, before.velocity)))
            them[client].since = index
        made.append(state.history.numbers[index])
        for client in chosen:
            them[client].seeds = made[index]
    scalars = [2 * algorithm.size_and_number((index, 100))[1] for index in range(12)]
    last = [max(index for index, chosen in enumerate(COHORTS) if client in chosen) for client in range(6)]
    assert sent == [sum(scalars[:index]) for index in last]  # each round's scalars once, however seldom it came


def test_a_short_history_sends_the_model_and_verifies_from_its_oldest_round() -> None:
    clients = problem()
    algorithm = DeComFL(steps=2, perturbations=3, lr=0.01, momentum=0.5, stages=STAGES, history=3, verify_replay=True)
    whole = replace(algorithm, history=50)
    state, other, models = first_state(algorithm, clients), first_state(whole, clients), 0
    last, longer = [0] * 6, 0
    for index, chosen in enumerate(COHORTS):
        for client in chosen:
            longer, last[client] = longer + (index - last[client] > 3), index
        link = NotingLink(Ledger())
        state, metrics = algorithm.round(state, cohort_of(*chosen), context(clients, index, link))
        other, kept = whole.round(other, cohort_of(*chosen), context(clients, index))
        numbers = [algorithm.size_and_number((number, 100))[1] for number in range(index)]
        for some, most in ((metrics, 3), (kept, 50)):  # of each round as many scalars as it had
            assert some["history/bits"] == sum(32 * 2 * num + 64 * 2 for num in numbers[-most:])
        models += sum(len(who) for who, one in link.broadcasts if "values" in one.fields)
        assert metrics["replay/max"] <= 3
    assert torch.equal(state.theta, other.theta)
    assert models == longer > 0


def test_a_wrong_replay_is_noticed() -> None:
    clients = problem()
    algorithm = DeComFL(lr=0.01, verify_replay=True)
    state, _ = algorithm.round(first_state(algorithm, clients), cohort_of(0, 1), context(clients, 0))
    wrong = replace(state, history=replace(state.history, lr=2 * state.history.lr))
    with pytest.raises(AssertionError, match="has another model"):
        algorithm.round(wrong, cohort_of(0, 1), context(clients, 1))


@looped("momentum, num, seed", [(0.0, 8, 0), (0.5, 8, 0), (0.0, 8, 64), (0.0, 9, 64)])
def test_the_shortest_downlink_is_never_longer_than_the_model(momentum: float, num: int, seed: int) -> None:
    """`seed`: bits of one; the round's own go to both clients."""
    clients, cost = problem(), "sent" if seed else "derived"
    algorithm = DeComFL(perturbations=num, lr=0.01, momentum=momentum, sends="shortest", seed_cost=cost)
    state = first_state(algorithm, clients)
    most = 32 * D * (2 if momentum else 1)
    for index, chosen in enumerate(COHORTS):
        ledger = Ledger()
        state, _ = algorithm.round(state, cohort_of(*chosen), context(clients, index, NotingLink(ledger)))
        assert ledger.counters()["downlink"] <= 2 * (most + seed)
    known = min(most, 32 * num * (11 - 7) + 3 * seed)  # client 2 was here in round 7; the other is a newcomer
    assert ledger.counters()["downlink"] == most + known + 2 * seed


def test_bits_of_replays() -> None:
    """32 K P M + 64 K M' + 64 K down with M' = M - 1, or M for a newcomer; the paper counts 2 M K P numbers."""
    clients, steps, num = problem(), 2, 5
    algorithm = DeComFL(steps=steps, perturbations=num, lr=0.01)
    state, last = first_state(algorithm, clients), [-1] * 6
    for index, chosen in enumerate(COHORTS):
        ledger = Ledger()
        state, metrics = algorithm.round(state, cohort_of(*chosen), context(clients, index, NotingLink(ledger)))
        missed = [index - max(last[client], 0) for client in chosen]
        unknown = [num_missed - (last[client] >= 0) for client, num_missed in zip(chosen, missed)]
        found = ledger.counters()
        assert found["uplink"] == found["paper/uplink"] == 2 * 32 * steps * num
        assert found["downlink"] == 32 * steps * num * sum(missed) + 64 * steps * (sum(unknown) + 2)
        assert found["paper/downlink"] == 2 * 32 * steps * num * sum(missed)
        assert metrics["replay/rounds"] == sum(missed) / 2
        assert metrics["replay/max"] == max(missed)
        assert metrics["history/bits"] == index * (32 * steps * num + 64 * steps)
        for client in chosen:
            last[client] = index


def test_every_downlink_trains_the_same_model() -> None:
    found = {}
    for downlink in ("replay", "shortest", "model", "broadcast_all"):
        sim = world.simulation(DeComFL(steps=2, perturbations=5, lr=0.02, momentum=0.5, batch_size=4, sends=downlink))
        found[downlink] = world.run(sim).theta
    assert all(torch.equal(found["replay"], theta) for theta in found.values())


@looped("algorithm", [DeComFL(batch_size=4), FedKSeed(pool=50, steps=4, lr=0.01, batch_size=4)])
def test_scalars_that_are_not_finite_stop_the_run(algorithm: Any) -> None:
    sim = world.simulation(algorithm, data=world.dataset(scale=1e38))
    state, result = sim.round(0, sim.init(), Ledger())
    assert state.theta.isfinite().all()
    with pytest.raises(Diverged, match=r"round 1: the (loss|message/scalar) of client \d.* is (nan|inf)"):
        DivergenceMonitor().add(1, result.cohort, result.metrics)


@looped("algorithm", [DeComFL(), FedKSeed()])
def test_running_statistics_are_refused_unless_they_are_gathered(algorithm: Any) -> None:
    line = f"algorithm={type(algorithm).__name__.lower()}: this model has BatchNorm, whose 8 running statistics"
    with pytest.raises(ValueError, match=line):
        world.simulation(algorithm, world.with_batch_norm).init()
