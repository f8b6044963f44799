"""Local SVRG on least squares: exact means over all draws, degenerate cases, mini-chunks, the hook, BatchNorm."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from fedcomp.client import full_gradient
from fedcomp.model.contract import Batch, Gradient
from fedcomp.random.keys import Key
from tests.client.linear_regression import LR, SIZES, START, Chosen, agents, descend, gradient, rows, run
from tests.conformance import world
from tests.looped import looped
from tests.parts import Compressor, Dense, FedAvg, ServerSgd, Sgd, Svrg


def test_direction_is_unbiased_and_its_variance_is_that_of_the_curvatures() -> None:
    """At w_1, one step away from the snapshot, over all samples i that the second step may take."""
    size = 6
    data = agents((size,))
    x, y = rows(data, 0)
    solver = Svrg(lr=LR, snapshots=1, inner_steps=2)
    w_1 = descend(x, y, START, 1)
    directions = torch.stack(
        [(w_1 - run(solver, Chosen(data, torch.tensor([[[0]], [[i]]])))[0]) / LR for i in range(size)]
    )
    full = gradient(x, y, w_1)
    assert torch.allclose(directions.mean(0), full, rtol=0, atol=1e-12)
    curvature = 2 * x[:, :, None] * x[:, None, :]
    expected = ((curvature - curvature.mean(0)) @ (w_1 - START)).square().sum(1).mean()
    assert torch.allclose((directions - full).square().sum(1).mean(), expected, rtol=1e-10)
    assert expected > 1e-5


def test_mean_over_all_draws_is_gradient_descent() -> None:
    """Quadratics: by linearity, exactly."""
    size, inner = 3, 3
    data = agents((size,))
    solver = Svrg(lr=LR, snapshots=1, inner_steps=inner)
    draws = [torch.tensor(draw).view(inner, 1, 1) for draw in product(range(size), repeat=inner)]
    ends = torch.stack([run(solver, Chosen(data, draw))[0] for draw in draws])
    assert torch.allclose(ends.mean(0), descend(*rows(data, 0), START, inner), rtol=0, atol=1e-12)
    assert ends.std(0).max() > 1e-3


def test_one_inner_step_is_gradient_descent_bit_for_bit() -> None:
    data = agents()
    ((x, y, weight),) = data.samples(100)
    expected = START.expand(len(SIZES), -1)
    for _ in range(4):
        full = data.model.gradient(expected, Batch(x, y, weight, torch.zeros(len(SIZES), 0)))
        expected = torch.sub(expected, full.grad, alpha=LR)
    assert torch.equal(run(Svrg(lr=LR, snapshots=4, inner_steps=1), data), expected)


def test_one_sample_is_gradient_descent() -> None:
    data = agents((1,))
    after = run(Svrg(lr=LR, snapshots=2, inner_steps=3), data)[0]
    assert torch.allclose(after, descend(*rows(data, 0), START, 6), rtol=0, atol=1e-14)


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


def test_agents_one_by_one_are_the_agents_together() -> None:
    data, solver = agents(), Svrg(lr=LR, batch_size=2, snapshots=2, inner_steps=3)
    together = run(solver, data)
    for agent in range(len(SIZES)):
        ids = torch.tensor([agent])
        alone = type(data)(ids, data.sizes[[agent]], data.key, data.dataset, data.shards, data.model)
        assert torch.allclose(run(solver, alone)[0], together[agent], rtol=0, atol=1e-14)


def test_start_is_left_as_it_was_and_loss_is_the_mean_of_the_steps() -> None:
    data, start = agents(), START.expand(len(SIZES), -1).clone()
    result = Svrg(lr=1e-12, snapshots=1, inner_steps=400).run(data, start, torch.zeros(len(SIZES), 0), (0, 1))
    assert torch.equal(start, START.expand(len(SIZES), -1))
    x, y = rows(data, 0)
    each = (x @ START - y[:, 0]).square()
    assert abs(result.loss[0] - each.mean()) < 4.5 * each.std() / 20


def test_common_minimiser_is_a_fixed_point() -> None:
    data = agents(noise=0.0)
    best = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    after = run(Svrg(lr=LR, snapshots=5, inner_steps=5), data, best)
    assert torch.allclose(after, best.expand(len(SIZES), -1), rtol=0, atol=1e-6)  # targets are rounded to float32
    assert not torch.allclose(run(Svrg(lr=LR, snapshots=5, inner_steps=5), agents(), best)[0], best, atol=1e-3)


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


def test_draws_follow_from_the_key() -> None:
    solver = Svrg(lr=LR, snapshots=1, inner_steps=5)
    assert torch.equal(run(solver, agents()), run(solver, agents()))
    assert not torch.equal(run(solver, agents()), run(solver, agents(key=Key(("other",)))))


@looped("value", [0, -1, 1.5, True])
def test_the_size_of_a_part_of_a_snapshot_is_checked(value: float) -> None:
    with pytest.raises(ValueError, match=f"client.snapshot_batch_size={value} must be a whole number, 1 or more"):
        Svrg(lr=0.1, snapshot_batch_size=value)  # type: ignore[arg-type]
