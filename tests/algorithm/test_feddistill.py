"""FedDistill: rounds against plain modules, one client after another, and the bits of its messages."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedcomp.algorithm.feddistill import FedDistill
from tests.conformance import world
from tests.looped import looped
from tests.parts import Cohorts, Sgd
from tests.rounds import rounds

LR, GAMMA, ROUNDS = 0.5, 0.7, 3
WHOLE = Sgd(lr=LR, batch_size=100)
"""One step of all samples a round."""
SIZES = (9, 5, 4, 2)
"""The last client has no sample of some class."""
CLASSES = world.NUM_CLASSES
BITS_OF_NUMBER = 3
"""Of a number of clients from 0 to 4."""


def _simulation(participation=world.FULL, gamma: float = GAMMA, **options):
    return world.simulation(
        FedDistill(WHOLE, gamma), participation=participation, sizes=SIZES, rounds=ROUNDS, **options
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
    first = copy.deepcopy(sim.model.module)
    vector_to_parameters(sim.init().theta[0], first.parameters())
    modules = [copy.deepcopy(first) for _ in SIZES]
    sent: list[dict[int, Tensor]] = [{} for _ in SIZES]
    for one in rounds(sim):
        before, sent = sent, []
        for client, module in enumerate(modules):
            x, y = _samples(sim, client)
            others = [means for number, means in enumerate(before) if number != client]
            known = {label for means in others for label in means}
            taught = {label: torch.stack([own[label] for own in others if label in own]).mean(0) for label in known}
            _step(module, x, y, taught)
            sent.append(_means(module, x, y))
            torch.testing.assert_close(one.after.theta[client], parameters_to_vector(module.parameters()).detach())
    assert len(sent[3]) < CLASSES


@looped("cohort", [(0, 1, 2, 3), (1, 3)])
def test_bits_are_those_of_the_classes_that_are_sent(cohort: tuple[int, ...]) -> None:
    """Up L bits and 32 L a class; down the numbers of clients, and 32 L for each class that anybody has sent."""
    rows = [len(_samples(_simulation(), client)[1].unique()) for client in range(len(SIZES))]
    sim = _simulation(participation=Cohorts((cohort,)))
    known = len(torch.cat([_samples(sim, client)[1] for client in cohort]).unique())
    for one, classes in zip(rounds(sim, 2), (0, known), strict=True):
        down = CLASSES * BITS_OF_NUMBER + 32 * CLASSES * classes
        assert one.bits["uplink"] == sum(CLASSES + 32 * CLASSES * rows[client] for client in cohort)
        assert (one.bits["broadcast"], one.bits["downlink"]) == (down, len(cohort) * down)


def test_nothing_is_learnt_from_others_with_gamma_0() -> None:
    """A client's model is then the same whoever else takes part."""
    together, alone = (world.run(_simulation(who, gamma=0.0)) for who in (world.FULL, Cohorts(((1,),))))
    assert torch.equal(together.theta[1], alone.theta[1])
    assert not torch.equal(alone.theta[0], together.theta[0])


def test_samples_without_classes_are_refused() -> None:
    setup = _simulation().setup(4)
    with pytest.raises(ValueError, match="sends a message for each class of samples, and the task is regression"):
        FedDistill(WHOLE).init(torch.zeros(3), torch.zeros(0), type(setup)(4, (), setup.key, "regression", 1))
