"""Local gradient descent: full gradients of clients of unequal sizes, whatever is computed at once."""

from dataclasses import dataclass, replace

import pytest
import torch

from fedcomp.client import Batching
from fedcomp.client.contract import LocalLoop
from tests.client.linear_regression import SIZES, START, agents, descend, rows, run
from tests.parts import GD, LocalSolver, Sgd, Svrg


def test_is_gradient_descent_of_every_client() -> None:
    data = agents()
    solver = GD(lr=0.1, steps=4, weight_decay=0.2)
    found = run(solver, data)
    for agent in range(len(SIZES)):
        assert torch.allclose(found[agent], descend(*rows(data, agent), START, 4, decay=0.2), rtol=0, atol=1e-12)
    for at_once in (1, 3, 8):
        assert torch.allclose(run(replace(solver, batch_size=at_once), data), found, rtol=0, atol=1e-12)


def test_the_loss_is_the_mean_over_samples_and_steps() -> None:
    data = agents()
    found = GD(lr=1e-12, steps=3, batch_size=4).run(data, START.expand(4, -1), torch.zeros(4, 0), (0, 1)).loss
    for agent in range(len(SIZES)):
        x, y = rows(data, agent)
        assert torch.allclose(found[agent], (x @ START - y[:, 0]).square().mean())


def test_is_pulled_and_clipped() -> None:
    data = agents((5,))
    pulled = run(GD(lr=0.1, steps=3, proximal=2.0), data)[0]
    assert torch.allclose(pulled, descend(*rows(data, 0), START, 3, pull=2.0), rtol=0, atol=1e-12)
    assert float((run(GD(lr=0.1, clip_norm=0.01), data)[0] - START).norm()) == pytest.approx(0.001)


@dataclass(frozen=True, kw_only=True)
class Own(LocalSolver):
    """What a solver of one's own must have."""

    @property
    def batching(self) -> Batching:
        return Batching(self.batch_size, steps=3)


class Recorder:
    """A runner that notes what it is asked to run."""

    def __init__(self) -> None:
        self.solvers: list[LocalSolver] = []

    def run(self, loop: LocalLoop) -> None:
        self.solvers.append(loop.solver)


def test_the_steps_of_a_solver_of_ones_own_are_those_of_sgd() -> None:
    own, sgd = Own(lr=0.1, batch_size=2), Sgd(lr=0.1, batch_size=2, steps=3)
    assert torch.equal(run(own, agents()), run(sgd, agents()))


def test_only_steps_of_one_batch_each_go_to_a_runner() -> None:
    recorder, own = Recorder(), Own(lr=0.1)
    for solver in (GD(lr=0.1), Svrg(lr=0.1), own):
        run(solver, replace(agents(), loop_runner=recorder))
    assert recorder.solvers == [own]
