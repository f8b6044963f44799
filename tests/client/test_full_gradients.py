"""Local gradient descent and SVRG on least squares: full gradients of clients of unequal sizes, the loop, the hook."""

from dataclasses import dataclass, replace

import pytest
import torch

from fedcomp.client import Batching, full_gradient
from fedcomp.client.contract import LocalLoop
from fedcomp.model.contract import Gradient
from tests.client.linear_regression import LR, SIZES, START, Chosen, agents, descend, gradient, rows, run
from tests.conformance import world
from tests.looped import looped
from tests.parts import GD, Compressor, Dense, FedAvg, LocalSolver, ServerSgd, Sgd, Svrg


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


@looped("proximal", [0, 0.7])
def test_is_the_papers_loop_for_every_agent(proximal: float) -> None:
    """Agents of unequal sizes, two samples a step; the pull of a proximal term is no part of the difference."""
    data, solver = agents(), Svrg(lr=LR, batch_size=2, snapshots=3, inner_steps=2, proximal=proximal)
    drawn = torch.rand(6, len(SIZES), 2, generator=torch.Generator().manual_seed(0))
    positions = (drawn * torch.tensor(SIZES)[:, None]).long()
    found = run(solver, Chosen(data, positions))
    for agent in range(len(SIZES)):
        x, y = rows(data, agent)
        theta = snapshot = START
        for step, own in enumerate(positions[:, agent]):
            if step % 2 == 0:
                snapshot, full = theta, gradient(x, y, theta)
            here, there = (gradient(x[own], y[own], at) for at in (theta, snapshot))
            theta = theta - LR * (here - there + full + proximal * (theta - START))
        assert torch.allclose(found[agent], theta, rtol=0, atol=1e-12)


@looped("chunk", [1, 2, 5, 9])
def test_mini_chunks_of_ragged_agents_change_rounding_alone(chunk: int) -> None:
    data = agents()
    whole = run(Svrg(lr=LR, snapshots=3, inner_steps=4, snapshot_batch_size=100), data)
    parts = run(Svrg(lr=LR, snapshots=3, inner_steps=4, snapshot_batch_size=chunk), data)
    assert torch.allclose(parts, whole, rtol=0, atol=1e-13)


def test_data_too_large_to_keep_is_gathered_for_each_snapshot(monkeypatch) -> None:
    data, solver = agents(), Svrg(lr=LR, snapshots=3, inner_steps=2, snapshot_batch_size=2)
    kept = run(solver, data)
    for values in (0, 20):
        monkeypatch.setattr(full_gradient, "HELD_VALUES", values)
        assert torch.equal(run(solver, data), kept)


def test_start_is_left_as_it_was_and_loss_is_the_mean_of_the_steps() -> None:
    data, start = agents(), START.expand(len(SIZES), -1).clone()
    result = Svrg(lr=1e-12, snapshots=1, inner_steps=400).run(data, start, torch.zeros(len(SIZES), 0), (0, 1))
    assert torch.equal(start, START.expand(len(SIZES), -1))
    x, y = rows(data, 0)
    each = (x @ START - y[:, 0]).square()
    assert abs(result.loss[0] - each.mean()) < 4.5 * each.std() / 20


def test_hook_is_asked_at_both_points_alike() -> None:
    data, asked = agents(), []

    def hook(theta, batch, step) -> Gradient:
        asked.append((step, batch.x, batch.stats, batch.num_rows))
        plain = data.gradient(theta, batch, step)
        return Gradient(2 * plain.grad, plain.loss, plain.stats)

    solver = Svrg(lr=LR, snapshots=2, inner_steps=2)
    hooked = solver.run(data, START.expand(4, -1), torch.zeros(4, 0), (0, 1), hook).value
    assert torch.allclose(hooked, run(Svrg(lr=2 * LR, snapshots=2, inner_steps=2), data), rtol=0, atol=1e-14)
    assert [step for step, *_ in asked] == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    for first, second in ((1, 2), (3, 4), (6, 7), (8, 9)):
        assert all(one is other for one, other in zip(asked[first][1:3], asked[second][1:3]))


def test_batch_norm_moves_with_the_steps_as_under_sgd() -> None:
    """With a vanishing step both solvers see the same model, and so the same batches give the same statistics."""
    dense = Compressor(Dense())
    ends = []
    for client in (
        Svrg(lr=1e-9, batch_size=4, snapshots=2, inner_steps=3),
        Sgd(lr=1e-9, batch_size=4, steps=6, replacement=True),
    ):
        sim = world.simulation(FedAvg(client, ServerSgd(), dense, dense), world.with_batch_norm, world.FULL)
        ends.append(world.run(sim, last=1).stats)
    assert torch.allclose(*ends, rtol=0, atol=1e-6)
    assert (ends[0] != sim.init().stats).all()


@looped("value", [0, -1, 1.5, True])
def test_the_size_of_a_part_of_a_snapshot_is_checked(value: float) -> None:
    with pytest.raises(ValueError, match=f"client.snapshot_batch_size={value} must be a whole number, 1 or more"):
        Svrg(lr=0.1, snapshot_batch_size=value)  # type: ignore[arg-type]
