"""The frozen base is in no message, costs no bits, and stays as it is, whatever the method."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcomp.algorithm.lora.ffa_lora import FFALoRA
from fedcomp.algorithm.zeroth_order.decomfl import DeComFL
from fedcomp.algorithm.zeroth_order.fedkseed import FedKSeed
from fedcomp.check.noninterference import RecordedRound, record
from fedcomp.model.flat import draw
from fedcomp.model.lora.add import add_lora
from fedcomp.wire import Field, Ledger, Payload
from fedcomp.wire.coding import Float
from tests.algorithm.lora.test_conformance import CASES as OF_ADAPTERS
from tests.algorithm.lora.test_conformance import SGD, TOPK
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase
from tests.lora_networks import ALPHA, BASE, RANK, lora_mlp, lora_mlp_b, lora_mlp_head
from tests.parts import DENSE, FedAvg, ServerSgd

ZEROTH = {"decomfl": DeComFL(lr=0.02, batch_size=4), "fedkseed": FedKSeed(pool=64, steps=12, lr=0.02, batch_size=4)}
CASES = [
    AlgorithmCase("fedavg", FedAvg(SGD, ServerSgd(), TOPK, DENSE), None, lora_mlp_head),
    *OF_ADAPTERS,
    *(AlgorithmCase(name, algorithm, None, lora_mlp_b) for name, algorithm in ZEROTH.items()),
]
MARK = torch.tensor(0.0712357)
"""Every second value of a marked base."""


def _marked(make):
    def module() -> nn.Module:
        made = make()
        for tensor in made.parameters():
            if not tensor.requires_grad:
                tensor.data.view(-1)[::2] = MARK
        return made

    return module


def _has_mark(rounds: list[RecordedRound]) -> bool:
    """Whether a message has the bits of the mark, at any place and in either order of bytes."""
    marks = {_bits(MARK.numpy().astype(order).tobytes()) for order in ("<f4", ">f4")}
    sent = [_bits(message) for one in rounds for frame in one.frames for message in frame.messages]
    assert sent
    return any(mark in message for mark in marks for message in sent)


def _bits(data: bytes) -> str:
    return "".join(map(str, np.unpackbits(np.frombuffer(data, np.uint8))))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_in_no_message_and_stays(case: AlgorithmCase) -> None:
    sim = world.simulation(case.algorithm, _marked(case.module), case.participation, rounds=3)
    before = {name: tensor.clone() for name, tensor in sim.model.frozen.items()}
    assert all((tensor == MARK).any() for tensor in before.values())
    rounds, _, _ = record(sim, Ledger())
    assert not _has_mark(rounds)
    assert all(torch.equal(tensor, before[name]) for name, tensor in sim.model.frozen.items())


@dataclass(frozen=True)
class _SendsBase(FFALoRA):
    """Sends a frozen tensor along."""

    base: Tensor | None = None

    def round(self, state, cohort, ctx):
        ctx.link.broadcast(Payload({"base": Field(self.base[None], Float())}), ctx.everyone)
        return super().round(state, cohort, ctx)


def test_a_base_in_a_message_is_found() -> None:
    base = _marked(lora_mlp_b)()[0].base.weight.detach().flatten()
    sim = world.simulation(_SendsBase(SGD, ServerSgd(), DENSE, DENSE, base=base), _marked(lora_mlp_b), rounds=1)
    assert _has_mark(record(sim, Ledger())[0])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wider_base_costs_no_bits(case: AlgorithmCase) -> None:
    """Twice the hidden units, each with half of its weight in the output: the same function, and the same D."""
    trains = "b" if case.module is lora_mlp_b else "both"
    totals, frozen = [], []
    for times in (1, 2):
        sim = world.simulation(case.algorithm, lambda times=times: _bottle(times, trains), case.participation)
        ledger = Ledger()
        world.run(sim, ledger=ledger)
        totals.append((sim.model.dim, ledger.counters()))
        frozen.append(sum(tensor.numel() for tensor in sim.model.frozen.values()))
    assert totals[0] == totals[1]
    assert frozen[0] < frozen[1]


def _bottle(times: int, trains: str) -> nn.Module:
    """5-6-(8 times)-3, an adapter on the first layer alone."""
    first, up, down = draw(lambda: nn.ModuleList([nn.Linear(5, 6), nn.Linear(6, 8), nn.Linear(8, 3)]), BASE)
    up.weight.data, up.bias.data = up.weight.data.repeat(times, 1), up.bias.data.repeat(times)
    down.weight.data = down.weight.data.repeat(1, times) / times
    return add_lora(nn.Sequential(first, nn.Tanh(), up, nn.Tanh(), down), RANK, ALPHA, ["0"], trains=trains)


@pytest.mark.parametrize("name", ZEROTH)
def test_scalars_of_b_alone_cost_as_much_as_of_any_model(name: str) -> None:
    """And a frozen A stays, while B moves."""
    dims, counted = set(), []
    for module in (lora_mlp_b, lora_mlp, world.mlp):
        sim, ledger = world.simulation(ZEROTH[name], module), Ledger()
        before = {own: tensor.clone() for own, tensor in sim.model.frozen.items()}
        state = world.run(sim, ledger=ledger)
        dims.add(sim.model.dim)
        counted.append(ledger.counters())
        assert (module is lora_mlp_b) == any("lora_A" in own for own in before)
        assert all(torch.equal(tensor, before[own]) for own, tensor in sim.model.frozen.items())
        assert not torch.equal(sim.algorithm.evaluation_models(state, sim.key)["test"].theta[0], sim.init().theta)
    assert len(dims) == 3
    assert counted[0] == counted[1] == counted[2]
