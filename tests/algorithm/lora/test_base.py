"""What stays at home: the frozen base is in no message and costs no bits; of FedSA-LoRA A alone is sent, and judged."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcomp.algorithm.contract import Models
from fedcomp.algorithm.lora.fedsa_lora import FedSALoRA
from fedcomp.algorithm.lora.ffa_lora import FFALoRA
from fedcomp.algorithm.zeroth_order.decomfl import DeComFL
from fedcomp.algorithm.zeroth_order.fedkseed import FedKSeed
from fedcomp.check.noninterference import RecordedRound, record
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.evaluation.per_client import PerClient
from fedcomp.simulation.evaluation import metrics_of
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.wire import Field, Ledger, Payload
from fedcomp.wire.coding import Float
from tests.algorithm.lora.test_conformance import CASES as OF_ADAPTERS
from tests.algorithm.lora.test_conformance import SGD, TOPK
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase
from tests.looped import looped
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head
from tests.parts import DENSE, Compressor, Dense, FedAvg, ServerSgd, Sgd

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


@looped("case", {type(case.algorithm): case for case in CASES}.values())
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


FEDSA = FedSALoRA(Sgd(lr=0.2, batch_size=4), Compressor(Dense()))


def test_b_and_head_are_in_no_message() -> None:
    sim = world.simulation(FEDSA, lora_mlp_head, rounds=3)
    rounds, _, state = record(sim, Ledger())
    sent = b"".join(message for one in rounds for frame in one.frames for message in frame.messages)
    a, own = LoraLayout.of(sim.model.tensors).a, state.own[state.took_part[:, 0]]
    assert len(sent) == sum(4 * a.size * (1 + one.cohort.size) for one in rounds)
    assert _words(a.take(sim.init().theta)) <= _words(sent)
    assert not _words(own[own != 0]) & _words(sent)


def _words(values: Tensor | bytes) -> set[bytes]:
    """Floats as messages have them."""
    sent = values if isinstance(values, bytes) else values.numpy().astype(">f4").tobytes()
    return {sent[at : at + 4] for at in range(0, len(sent), 4)}


def test_each_client_has_its_own_and_who_never_came_is_the_base() -> None:
    sim = world.simulation(FEDSA, lora_mlp_head)
    state = world.run(sim)
    models, base = sim.algorithm.personal_models(state), sim.init()
    came = models.took_part.nonzero()[:, 0].tolist()
    assert 0 < len(came) < world.NUM_CLIENTS
    assert len({models.of_client(client)[0].numpy().tobytes() for client in came}) == len(came)
    x, a = sim.dataset.normalise(sim.dataset.test.x), LoraLayout.of(sim.model.tensors).a
    for client in set(range(world.NUM_CLIENTS)) - set(came):
        theta, _ = models.of_client(client)
        assert not torch.equal(a.take(theta), a.take(base.theta))
        assert torch.equal(sim.model.outputs(theta, state.stats, x), sim.model.outputs(base.theta, base.stats, x))


def test_a_client_is_judged_by_its_own_samples() -> None:
    sim = replace(world.simulation(FEDSA, lora_mlp), per_client=PerClient("train"))
    state, train = world.run(sim), sim.dataset.train
    found, losses, right = sim.test_metrics(4, state), [], []
    for client in state.took_part[:, 0].nonzero()[:, 0].tolist():
        first = int(sim.shards.start[client])
        own = sim.shards.order[first : first + int(sim.shards.sizes[client])]
        theta, stats = sim.algorithm.personal_models(state).of_client(client)
        data = replace(sim.dataset, test=type(train)(train.x[own], train.y[own]))
        values = metrics_of({"test": Models(theta[None], stats[None])}, sim.model, data)
        losses.append(float(values["test/loss"]))
        right.append(float(values["test/accuracy"]))
    assert float(found["test/loss"]) == pytest.approx(np.mean(losses))
    assert float(found["test/accuracy"]) == pytest.approx(np.mean(right))
    assert float(found["per_client/accuracy_mean"]) == pytest.approx(np.mean(right))
    assert float(found["per_client/accuracy_worst_decile"]) == pytest.approx(min(right))
    assert float(found["per_client/never_came"]) == world.NUM_CLIENTS - len(right)


def test_a_client_is_judged_by_the_classes_of_its_samples() -> None:
    sim = replace(world.simulation(FEDSA, lora_mlp), per_client=PerClient())
    state, test, expected = world.run(sim), sim.dataset.test, []
    x, models = sim.dataset.normalise(test.x), sim.algorithm.personal_models(state)
    for client in state.took_part[:, 0].nonzero()[:, 0].tolist():
        first = int(sim.shards.start[client])
        own = sim.shards.order[first : first + int(sim.shards.sizes[client])]
        right = (sim.model.outputs(*models.of_client(client), x).argmax(1) == test.y).double()
        of_class = [float(right[test.y == label].mean()) for label in range(sim.dataset.num_outputs)]
        expected.append(np.mean([of_class[label] for label in sim.dataset.train.y[own].tolist()]))
    assert float(sim.test_metrics(4, state)["test/accuracy"]) == pytest.approx(np.mean(expected))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_study_has_the_figures_of_each_repetition() -> None:
    first = world.simulation(FEDSA, lora_mlp)
    repetitions = tuple(replace(first, key=repetition_key(first.key, number)) for number in range(2))
    study = MonteCarloStudy.of(repetitions)
    state, _ = study.round(0, study.init(), Ledger())
    alone = [one.test_metrics(1, world.run(one, last=1)) for one in repetitions]
    line = study.evaluate(1, state, None).line
    assert line["test/loss"] == pytest.approx(np.mean([float(own["test/loss"]) for own in alone]))


def test_a_pooled_evaluation_is_refused() -> None:
    with pytest.raises(ValueError, match="take evaluation=per_client"):
        _ = replace(world.simulation(FEDSA, lora_mlp), per_client=None).client_samples
