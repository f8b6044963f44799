"""Rounds of networks with dropout: every mask belongs to a client, a round and a step, whoever trains beside it."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.check.algorithm import AlgorithmCase, check_chunks
from fedcomp.check.failed import same
from fedcomp.check.trajectory import check_repeat, check_resume
from fedcomp.core.pytree import flatten
from fedcomp.model.contract import Batch, StepDraws
from fedcomp.random.keys import Key
from fedcomp.runtime.workers import Workers
from fedcomp.simulation.cuda_graphs.graphed_loop import GraphedLoops
from fedcomp.simulation.monte_carlo.study import MonteCarloStudy, repetition_key
from fedcomp.wire import Ledger
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, ServerSgd, Sgd, Svrg, fedavg
from tests.simulation.cuda_graphs.strict_capture import StrictCapture
from tests.simulation.user_module import Attending, Dropping, dropping_chain

FEDAVG = fedavg(Sgd(lr=0.1, batch_size=4))
FEDMRN = FedMRN(Sgd(lr=0.1, batch_size=4), ServerSgd(), DENSE)
SVRG = fedavg(Svrg(lr=0.05, snapshots=2, inner_steps=2))
MODULES = (dropping_chain, Dropping, Attending)
Module = Callable[[], nn.Module]


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", [FEDAVG, FEDMRN, SVRG], ids=["fedavg", "fedmrn", "svrg"])
@pytest.mark.parametrize("module", MODULES)
def test_chunks_resume_and_repeat(module: Module, algorithm, tmp_path: Path) -> None:
    case = AlgorithmCase("dropout", algorithm, module=module)
    state = torch.get_rng_state()
    check_chunks(case)
    assert torch.equal(torch.get_rng_state(), state)
    check_resume(case)
    check_repeat(case)


def test_masks_that_depend_on_the_chunk_are_noticed(monkeypatch, trusting) -> None:
    """The fault: rows of a chunk instead of clients' numbers."""

    def uniform(self, call: int, num: int):
        return self.key.fold_in(call).uniform(torch.arange(len(self.ids)), num)

    monkeypatch.setattr(StepDraws, "uniform", uniform)
    with pytest.raises(AssertionError):
        check_chunks(AlgorithmCase("dropout", FEDAVG, module=Dropping))


@looped("module", MODULES)
def test_threads_change_no_bit(module: Module) -> None:
    sim = world.simulation(FEDAVG, module, chunk_size=2)
    once, twice = (world.run(replace(sim, workers=Workers(num))) for num in (1, 2))
    assert same(once, twice)


def test_two_rounds_and_two_steps_of_a_client_differ() -> None:
    simulation = world.simulation(FEDAVG, Dropping)
    theta, stats = simulation.model.init(Key(("model",)))
    x, y = torch.ones(1, 3, world.NUM_FEATURES), torch.zeros(1, 3, dtype=torch.int64)
    batch = Batch(x, y, None, stats[None])

    def grad(round_index: int, client: int, step: int) -> tuple[torch.Tensor, ...]:
        executor = simulation.clients(simulation.round_key(round_index).fold_in("client"), Ledger())
        data = executor._data(torch.tensor([client]), simulation.shards.sizes[[client]])
        return data.gradient(theta[None], batch, step).grad, data.losses(theta[None, None], batch, step)[0]

    assert all(map(torch.equal, grad(0, 0, 0), grad(0, 0, 0)))
    for other in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        assert not any(map(torch.equal, grad(0, 0, 0), grad(*other)))


@pytest.mark.parametrize("algorithm", [FEDAVG, FEDMRN], ids=["plain", "hook"])
@pytest.mark.parametrize("module", MODULES)
def test_a_loop_that_draws_is_never_captured(module: Module, algorithm, caplog) -> None:
    """A replay would repeat the masks of the step that was captured."""
    plain = world.simulation(algorithm, module, sizes=(8,) * 7)
    capture = StrictCapture()
    with caplog.at_level(logging.INFO, "fedcomp"):
        recorded = world.run(replace(plain, loop_runner=GraphedLoops(capture)))
    assert same(recorded, world.run(plain))
    assert capture.recorded == capture.replays == 0
    assert caplog.text.count("the model draws random numbers in training, and a replay would repeat them") == 1


def test_a_captured_step_of_a_model_that_draws_fails() -> None:
    """Also where something else captures it: the number of the step is then a tensor."""
    simulation = world.simulation(FEDAVG, Dropping)
    theta, stats = simulation.model.init(Key(("model",)))
    data = simulation.clients(Key(("round",)), Ledger())._data(torch.tensor([0]), simulation.shards.sizes[[0]])
    batch = Batch(torch.ones(1, 3, 5), torch.zeros(1, 3, dtype=torch.int64), None, stats[None])
    with pytest.raises(AssertionError, match="would repeat one mask"):
        data.gradient(theta[None], batch, torch.tensor(0))


def test_repetitions_draw_as_runs_of_their_own() -> None:
    first = world.simulation(FEDAVG, dropping_chain)
    runs = tuple(replace(first, key=repetition_key(first.key, number)) for number in range(3))
    study = MonteCarloStudy.of(runs)
    assert study.vmapped is not None
    state = world.run(study)
    for number, run in enumerate(runs):
        alone = flatten(world.run(run))
        for name, tensor in flatten(state).items():
            torch.testing.assert_close(tensor[number], alone[name], rtol=1e-4, atol=1e-6)


def test_the_gradients_that_svrg_subtracts_share_masks() -> None:
    """With one inner step and a full batch both points are the same, and so are the gradients."""
    simulation = world.simulation(SVRG, Dropping)
    theta, stats = simulation.model.init(Key(("model",)))
    data = simulation.clients(Key(("round",)), Ledger())._data(torch.tensor([2, 3]), simulation.shards.sizes[[3, 2]])
    asked = []

    def noted(theta, batch, step):
        asked.append(data.gradient(theta, batch, step).grad)
        return data.gradient(theta, batch, step)

    one = Svrg(lr=0.05, snapshots=1, inner_steps=1)
    one.run(data, theta.expand(2, -1), stats.expand(2, -1), (0, 1), noted)
    assert torch.equal(asked[-1], asked[-2])
