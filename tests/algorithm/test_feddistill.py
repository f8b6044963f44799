"""FedDistill: rounds against plain modules, one client after another, and the bits of its messages."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from fedcomp.algorithm.feddistill import FedDistill
from fedcomp.core.cohort import Cohort
from fedcomp.participation.full import Full
from fedcomp.random.keys import Key
from fedcomp.wire import Ledger, WireLink
from tests.conformance import world
from tests.looped import looped
from tests.parts import Sgd

LR, GAMMA, ROUNDS = 0.5, 0.7, 3
WHOLE = Sgd(lr=LR, batch_size=100)
"""One step of all samples a round."""
SIZES = (9, 5, 4, 2)
"""The last client has no sample of some class."""
CLASSES = world.NUM_CLASSES
BITS_OF_NUMBER = 3
"""Of a number of clients from 0 to 4."""


@dataclass(frozen=True)
class Only(Full):
    """These clients in every round."""

    clients: tuple[int, ...]

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        return Cohort.of(self.clients, torch.full((len(self.clients),), 1 / len(self.clients)))


def _simulation(participation=world.FULL, gamma: float = GAMMA, **options):
    return world.simulation(
        FedDistill(WHOLE, gamma), participation=participation, sizes=SIZES, rounds=ROUNDS, link=WireLink, **options
    )


def _samples(sim, client: int) -> tuple[Tensor, Tensor]:
    first = sum(SIZES[:client])
    rows = sim.shards.order[first : first + SIZES[client]]
    return sim.dataset.normalise(sim.dataset.train.x[rows]), sim.dataset.train.y[rows]


def _means(module: nn.Module, x: Tensor, y: Tensor) -> dict[int, Tensor]:
    """Class -> mean probabilities of its samples."""
    with torch.no_grad():
        p = module.eval()(x).softmax(1)
    return {label: p[y == label].mean(0) for label in y.unique().tolist()}


def _step(module: nn.Module, x: Tensor, y: Tensor, taught: dict[int, Tensor]) -> None:
    """One step along the gradient of the labels' loss and of the others' means, a sample at a time."""
    log_p = module.train()(x).log_softmax(1)
    loss = torch.zeros(())
    for of_sample, label in zip(log_p, y.tolist(), strict=True):
        loss = loss - of_sample[label]
        if label in taught:
            loss = loss - GAMMA * (taught[label] * of_sample).sum()
    grads = torch.autograd.grad(loss / len(y), list(module.parameters()))
    with torch.no_grad():
        for parameter, grad in zip(module.parameters(), grads, strict=True):
            parameter -= LR * grad


@looped("make", [world.mlp, world.with_batch_norm])
def test_rounds_are_those_of_plain_modules(make) -> None:
    sim = _simulation(module=make)
    state = sim.init()
    first = copy.deepcopy(sim.model.module)
    nn.utils.vector_to_parameters(state.theta[0], first.parameters())
    modules = [copy.deepcopy(first) for _ in SIZES]
    sent: list[dict[int, Tensor]] = [{} for _ in SIZES]
    for index in range(ROUNDS):
        state, _ = sim.round(index, state, Ledger())
        before, sent = sent, []
        for client, module in enumerate(modules):
            x, y = _samples(sim, client)
            others = [one for number, one in enumerate(before) if number != client]
            known = {label for one in others for label in one}
            taught = {label: torch.stack([one[label] for one in others if label in one]).mean(0) for label in known}
            _step(module, x, y, taught)
            sent.append(_means(module, x, y))
            torch.testing.assert_close(state.theta[client], nn.utils.parameters_to_vector(module.parameters()).detach())
    assert len(sent[3]) < CLASSES


@looped("cohort", [(0, 1, 2, 3), (1, 3)])
def test_bits_are_those_of_the_classes_that_are_sent(cohort: tuple[int, ...]) -> None:
    """Up L bits and 32 L a class; down the numbers of clients, and 32 L for each class that anybody has sent."""
    rows = [len(_samples(_simulation(), client)[1].unique()) for client in range(len(SIZES))]
    sim = _simulation(participation=Only(cohort))
    known = len(torch.cat([_samples(sim, client)[1] for client in cohort]).unique())
    state, ledger = sim.init(), Ledger()
    for index, classes in enumerate((0, known)):
        before = ledger.counters()
        state, _ = sim.round(index, state, ledger)
        found = {name: value - before[name] for name, value in ledger.counters().items()}
        down = CLASSES * BITS_OF_NUMBER + 32 * CLASSES * classes
        assert found["uplink"] == sum(CLASSES + 32 * CLASSES * rows[client] for client in cohort)
        assert found["broadcast"] == down
        assert found["downlink"] == len(cohort) * down


def test_nothing_is_learnt_from_others_with_gamma_0() -> None:
    """A client's model is then the same whoever else takes part."""
    together, alone = (world.run(_simulation(participation, gamma=0.0)) for participation in (world.FULL, Only((1,))))
    assert torch.equal(together.theta[1], alone.theta[1])
    assert not torch.equal(alone.theta[0], together.theta[0])


def test_samples_without_classes_are_refused() -> None:
    setup = _simulation().setup(4)
    with pytest.raises(ValueError, match="sends a message for each class of samples, and the task is regression"):
        FedDistill(WHOLE).init(torch.zeros(3), torch.zeros(0), type(setup)(4, (), setup.key, "regression", 1))
