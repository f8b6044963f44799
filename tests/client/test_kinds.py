"""Kinds of local solvers: gradient descent and SVRG on least squares, Muon in closed form; hooks, memories."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from fedcomp.client import Batching, full_gradient
from fedcomp.client.contract import LocalLoop
from fedcomp.client.muon import POLYNOMIALS, orthogonalised
from fedcomp.config.compose import compose
from fedcomp.config.factory import build_simulation
from fedcomp.core.parameter_layout import BIAS, EMBEDDING, WEIGHT, ParameterSubset, ParameterTensor
from fedcomp.model.contract import Gradient
from tests.client.linear_regression import LR, SIZES, START, Chosen, agents, descend, gradient, rows, run
from tests.client.test_solver import Quadratics
from tests.conformance import world
from tests.looped import looped
from tests.parts import DENSE, GD, Adam, FedAvg, LocalSolver, Muon, ServerSgd, Sgd, Svrg
from tests.refused import one_line_error, refused


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
    assert (own.momentum, own.weight_decay) == (0, 0)


class Rebinds(Own):
    """Its `update` gives a name to new numbers, and leaves those that it was given."""

    def update(self, theta, grad, slots, coefficients):
        theta = theta - 0.1 * grad


def test_a_yaml_without_the_size_of_a_batch_is_one_line() -> None:
    config = compose(["num_clients=2", "rounds=1"])
    config.client = OmegaConf.create({"_target_": f"{__name__}.Own", "lr": 0.1})
    with one_line_error("^client.batch_size is missing: its YAML needs `batch_size: ...`"):
        build_simulation(config, torch.device("cpu"))


class Forgets(Own):
    """Its `update` computes a new momentum, which no later step has."""

    def init(self, theta):
        return (torch.zeros_like(theta),)

    def update(self, theta, grad, slots, coefficients):
        super().update(theta, slots[0] * 0.9 + grad, slots, coefficients)


test_an_update_that_changes_nothing_in_place_is_one_line = refused(
    [
        ({"solver": Forgets(lr=0.1)}, "^client=test_kinds: update leaves its memories as they were, .* in place"),
        ({"solver": Rebinds(lr=0.1)}, "^client=test_kinds: update leaves theta as it was, .* in place"),
    ],
    lambda solver: run(solver, agents()),
)


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
    ends = []
    for client in (
        Svrg(lr=1e-9, batch_size=4, snapshots=2, inner_steps=3),
        Sgd(lr=1e-9, batch_size=4, steps=6, replacement=True),
    ):
        sim = world.simulation(FedAvg(client, ServerSgd(), DENSE, DENSE), world.with_batch_norm, world.FULL)
        ends.append(world.run(sim, last=1).stats)
    assert torch.allclose(*ends, rtol=0, atol=1e-6)
    assert (ends[0] != sim.init().stats).all()


def test_batch_norm_moves_with_every_full_gradient() -> None:
    """With a vanishing step each moves it by a tenth of what is left of the way."""
    sims = [
        world.simulation(FedAvg(GD(lr=1e-9, steps=steps), ServerSgd(), DENSE, DENSE), world.with_batch_norm, world.FULL)
        for steps in (1, 2)
    ]
    first, (once, twice) = sims[0].init().stats, (world.run(sim, last=1).stats for sim in sims)
    assert (once != first).all()
    assert torch.allclose(twice - once, 0.9 * (once - first), rtol=0, atol=1e-6)


@looped("value", [0, -1, 1.5])
def test_the_size_of_a_part_of_a_snapshot_is_checked(value: float) -> None:
    with pytest.raises(ValueError, match=f"client.snapshot_batch_size={value} must be a whole number, 1 or more"):
        Svrg(lr=0.1, snapshot_batch_size=value)  # type: ignore[arg-type]


UNEQUAL = (5, 3, 1)
TENSORS = (
    ParameterTensor(8, EMBEDDING, 4),
    ParameterTensor(24, WEIGHT, 4),  # 6 x 4
    ParameterTensor(6, BIAS),
    ParameterTensor(12, WEIGHT, 6),  # 2 x 6, the head
)
DIM = 50
TALL = slice(8, 32)
MUON = Muon(lr=0.1, adam_lr=0.02, weight_decay=0.3, tensors=TENSORS)


def _scalar(value: float) -> float:
    """What the polynomials make of one singular value."""
    for a, b, c in POLYNOMIALS:
        value = a * value + b * value**3 + c * value**5
    return value


def _by_svd(matrix: Tensor) -> Tensor:
    """NS of one matrix [m, n] by its singular values."""
    left, values, right = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
    return left @ torch.diag(torch.tensor([_scalar(float(one)) for one in values], dtype=matrix.dtype)) @ right


@looped("shape", [(64, 96), (96, 64), (7, 3), (1, 9)])
def test_singular_values_end_near_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = orthogonalised(matrices)
    assert (torch.linalg.svdvals(found) - 1).abs().max() < 0.1
    for one, expected in zip(found, matrices):
        torch.testing.assert_close(one, _by_svd(expected), rtol=0, atol=1e-9)
    assert (torch.linalg.svdvals(orthogonalised(matrices.float())) - 1).abs().max() < 0.1


def test_orthogonal_matrices_stay_but_for_a_factor_and_zero_stays_zero() -> None:
    q = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    torch.testing.assert_close(orthogonalised(5 * q[None])[0], _scalar(6**-0.5) * q)
    torch.testing.assert_close(orthogonalised(1e-30 * q[None]), orthogonalised(1e30 * q[None]))
    assert not orthogonalised(torch.zeros(2, 3, 4)).any()


@looped("scale, size", [("spectral_norm", (6 / 4) ** 0.5), ("rms_norm", 0.2 * 6**0.5)])
@looped("rounds", [1, 2])
def test_matrices_take_muons_steps_and_the_rest_adamws(scale: str, size: float, rounds: int) -> None:
    """Against one client at a time; a second round goes on with the memories of the first."""
    world, muon = Quadratics(UNEQUAL, DIM, TENSORS), replace(MUON, scale=scale)
    start, stats = 2 * world.centre, torch.zeros(3, 0)
    memory = muon.init_persistent(3, start[0])
    for _ in range(rounds):
        result = muon.run(world, start, stats, (0, 1), memory=memory)
        memory = result.memory
    adamw = Adam(lr=0.02, beta2=0.99, weight_decay=0.3, decoupled=True)
    rest, others = adamw.init_persistent(3, start[0]), ParameterSubset(DIM, ((0, 8), (32, 50)), (8, 18))
    for _ in range(rounds):
        expected = adamw.run(world, start, stats, (0, 1), memory=rest)
        rest = expected.memory
    torch.testing.assert_close(others.take(result.value), others.take(expected.value), rtol=1e-12, atol=1e-12)
    for client, steps in enumerate(UNEQUAL):
        momentum = torch.zeros(6, 4, dtype=torch.float64)
        for _ in range(rounds):
            w = start[client, TALL].view(6, 4).clone()
            for step in range(steps):
                grad = world.h[TALL] * (w.flatten() - world.centre[client, TALL]) + world.noise[step, TALL]
                momentum = 0.9 * momentum + grad.view(6, 4)
                w = (1 - 0.1 * 0.3) * w - 0.1 * size * _by_svd(momentum)
        torch.testing.assert_close(result.value[client, TALL], w.flatten(), rtol=0, atol=1e-9)
    assert memory[-1][:, 0].tolist() == [rounds * steps for steps in UNEQUAL]
    if rounds == 1:
        fresh = muon.run(world, start, stats, (0, 1))
        torch.testing.assert_close(fresh.value, result.value, rtol=1e-12, atol=1e-12)


def test_the_schedule_is_that_of_both_rates() -> None:
    muon = replace(MUON, schedule="linear", lr_final=0.5)
    assert muon.step_coefficients(0, muon.learning_rate((2, 3)))[0] == pytest.approx(-0.05)
    assert muon.step_coefficients(10**6, muon.learning_rate((2, 3)))[2] == pytest.approx(-0.01)


def test_which_matrices_it_trains(caplog: pytest.LogCaptureFixture) -> None:
    assert MUON.matrices == ((8, 6, 4),)
    assert MUON.rest.runs == ((0, 8), (32, 50))
    assert replace(MUON, skip_last=0).matrices == ((8, 6, 4), (38, 2, 6))
    with caplog.at_level(logging.WARNING, "fedcomp"):
        MUON.check_tensors(TENSORS)
        assert not caplog.text
        MUON.check_tensors(TENSORS[2:])
    assert "client=muon is AdamW here" in caplog.text


def test_from_the_command_line(fedcomp, tmp_path: Path) -> None:
    common = ("client=muon", "rounds=2", "num_clients=3", "pictures=false", f"output_root={tmp_path}")
    assert fedcomp(*common, "server=nesterov", "algorithm.persist_optimizer=true", "client.steps=2") == 0
    logs = [path.read_text() for path in tmp_path.rglob("run.log")]
    assert not any("client=muon is AdamW here" in text for text in logs)
    assert fedcomp(*common, "model=linear") == 0
    assert any("client=muon is AdamW here" in path.read_text() for path in tmp_path.rglob("run.log"))
