"""FedSA-LoRA: A alone is sent, each client's model is its own, and its own samples judge it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcomp.algorithm.contract import Models
from fedcomp.algorithm.lora.fedsa_lora import FedSALoRA
from fedcomp.check.noninterference import record
from fedcomp.core.lora_layout import LoraLayout
from fedcomp.evaluation.per_client import PerClient
from fedcomp.simulation.evaluation import metrics_of
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.lora_networks import lora_mlp, lora_mlp_head
from tests.parts import Compressor, Dense, Sgd

FEDSA = FedSALoRA(Sgd(lr=0.2, batch_size=4), Compressor(Dense()))


def test_b_and_head_are_in_no_message() -> None:
    sim = world.simulation(FEDSA, lora_mlp_head, rounds=3)
    rounds, _, state = record(sim, Ledger())
    sent = b"".join(message for one in rounds for frame in one.frames for message in frame.messages)
    a, own = LoraLayout.of(sim.model.tensors).a, state.own[state.took_part[:, 0]]
    assert len(sent) == sum(4 * a.size * (1 + one.cohort.size) for one in rounds)
    assert _words(a.take(sim.init().theta)) <= _words(sent)
    assert not _words(own[own != 0]) & _words(sent)


def _words(values: torch.Tensor | bytes) -> set[bytes]:
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


@pytest.mark.parametrize("data", ["test", "train"])
def test_a_client_is_judged_by_its_own_samples(data) -> None:
    sim = replace(world.simulation(FEDSA, lora_mlp), per_client=PerClient(data))
    state = world.run(sim)
    found = sim.test_metrics(4, state)
    losses, right = [], []
    for client in state.took_part[:, 0].nonzero()[:, 0].tolist():
        first = int(sim.shards.start[client])
        own = sim.shards.order[first : first + int(sim.shards.sizes[client])]
        theta, stats = sim.algorithm.personal_models(state).of_client(client)
        models, train, test = Models(theta[None], stats[None]), sim.dataset.train, sim.dataset.test
        if data == "train":
            one = replace(sim.dataset, test=type(train)(train.x[own], train.y[own]))
            values = metrics_of({"test": models}, sim.model, one)
        else:  # the test set, each class as often as the client has it
            counts = np.bincount(train.y[own], minlength=world.NUM_CLASSES)
            each = [
                metrics_of(
                    {"test": models},
                    sim.model,
                    replace(sim.dataset, test=type(test)(test.x[test.y == label], test.y[test.y == label])),
                )
                for label in range(world.NUM_CLASSES)
            ]
            values = {
                name: sum(float(one[name]) * n for one, n in zip(each, counts)) / counts.sum() for name in each[0]
            }
        losses.append(float(values["test/loss"]))
        right.append(float(values["test/accuracy"]))
    assert float(found["test/loss"]) == pytest.approx(np.mean(losses))
    assert float(found["test/accuracy"]) == pytest.approx(np.mean(right))
    assert float(found["per_client/accuracy_mean"]) == pytest.approx(np.mean(right))
    assert float(found["per_client/accuracy_worst_decile"]) == pytest.approx(min(right))
    assert float(found["per_client/never_came"]) == world.NUM_CLIENTS - len(right)


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
