"""RoLoRA and FFA-LoRA: what is trained, what is sent, and which models they are for. A has 22 entries, B 18."""

from itertools import pairwise

import pytest
import torch

from fedcomp.algorithm.lora.ffa_lora import FFALoRA
from fedcomp.algorithm.lora.rolora import RoLoRA
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.wire import Ledger, WireLink
from tests.conformance import world
from tests.lora_networks import lora_mlp, lora_mlp_b
from tests.parts import Adam, Compressor, Dense, Muon, ServerSgd, Sgd

DENSE = Compressor(Dense())
ADAM = Adam(lr=0.1, batch_size=4, weight_decay=0.1, decoupled=True)
A, B = 22, 18


def test_a_client_is_sent_what_it_misses() -> None:
    sim = world.simulation(RoLoRA(Sgd(lr=0.1, batch_size=4), DENSE), lora_mlp, rounds=8, link=WireLink)
    state, last, kinds = sim.init(), {}, set()
    for index in range(8):
        ledger = Ledger()
        state, result = sim.round(index, state, ledger)
        down = 0
        for client in result.cohort.clients:
            since = last.get(client, 0)
            halves = {before % 2 for before in range(since, index)}
            down += 32 * sum(A if half else B for half in halves)
            kinds.add(tuple(halves))
            last[client] = index
        counters = ledger.counters()
        assert counters["uplink"] == 3 * 32 * (A if index % 2 else B)
        assert counters["downlink"] == down
    assert kinds == {(), (0,), (1,), (0, 1)}


def test_the_half_that_rests_is_the_same_bit_for_bit() -> None:
    sim = world.simulation(RoLoRA(ADAM, DENSE), lora_mlp)
    layout, states = LoraLayout.of(sim.model.tensors), [sim.init()]
    for index in range(4):
        states.append(sim.round(index, states[-1], Ledger())[0])
    for index, (old, new) in enumerate(pairwise(states)):
        trained, rests = (layout.a, layout.b) if index % 2 else (layout.b, layout.a)
        assert torch.equal(rests.take(old.theta), rests.take(new.theta))
        assert not torch.equal(trained.take(old.theta), trained.take(new.theta))


def test_a_round_of_a_before_one_of_b_would_be_lost() -> None:
    sim = world.simulation(RoLoRA(Sgd(lr=0.1, batch_size=4), DENSE), lora_mlp)
    state = sim.init()
    assert torch.equal(sim.round(1, state, Ledger())[0].theta, state.theta)


def test_models_and_solvers_that_it_is_not_for() -> None:
    with pytest.raises(ValueError, match="take model.trains=both"):
        world.simulation(RoLoRA(ADAM, DENSE), lora_mlp_b).init()
    with pytest.raises(ValueError, match="has no low-rank adapters"):
        world.simulation(RoLoRA(ADAM, DENSE)).init()
    with pytest.raises(ValueError, match="take client=sgd, adam or adamw"):
        RoLoRA(Muon(lr=0.1), DENSE)
    with pytest.raises(ValueError, match="take model.trains=b"):
        world.simulation(FFALoRA(ADAM, ServerSgd(), DENSE, DENSE), lora_mlp).init()
