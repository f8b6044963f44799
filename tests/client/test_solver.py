"""Local solvers against torch.optim, one client at a time; gradient hooks; the proximal term; clipping; schedules."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.client import Batch, Hook
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.client.shifted_gradient import shifted_gradient
from fedcomp.client.solver import clip, learning_rate_factor
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.model.contract import Gradient
from fedcomp.random.keys import Key
from tests.looped import looped
from tests.parts import Adam, LocalSolver, Sgd

STEPS = (6, 4, 4, 1)


class Quadratics:
    """Clients with losses 0.5 sum_j h_j (theta_j - c_ij)^2 + noise_s . theta; client i makes steps[i] steps."""

    def __init__(self, steps: tuple[int, ...] = STEPS, dim: int = 5, tensors: tuple[ParameterTensor, ...] = ()) -> None:
        generator = torch.Generator().manual_seed(0)
        self.ids, self.steps, self.loop_runner, self.tensors = torch.arange(len(steps)), steps, None, tensors
        self.num_samples = torch.tensor(steps)
        self.h = torch.rand(dim, generator=generator, dtype=torch.float64) + 0.1
        self.centre = torch.randn(len(steps), dim, generator=generator, dtype=torch.float64)
        self.noise = torch.randn(max(steps), dim, generator=generator, dtype=torch.float64)

    def batches(self, batching):
        for step in range(max(self.steps)):
            active = sum(step < steps for steps in self.steps)
            yield self.centre[:active], torch.zeros(active, 1), None

    def num_steps(self, batching):
        return self.num_samples

    def gradient(self, theta, batch: Batch, step: int) -> Gradient:
        difference = theta - batch.x
        loss = 0.5 * (self.h * difference.square()).sum(1)
        return Gradient(self.h * difference + self.noise[step], loss, batch.stats)


def _torch(optimizer_of, client: int, begin: Tensor, num_rounds: int = 1, mu: float = 0.0) -> Tensor:
    """Where the client ends in the last round, each of which begins there and goes on with the same optimizer."""
    world, theta = Quadratics(), begin.clone().requires_grad_()
    optimizer = optimizer_of([theta])
    for _ in range(num_rounds):
        theta.data.copy_(begin)
        for step in range(STEPS[client]):
            optimizer.zero_grad()
            loss = 0.5 * (world.h * (theta - world.centre[client]).square()).sum() + world.noise[step] @ theta
            (loss + mu / 2 * (theta - begin).square().sum()).backward()
            optimizer.step()
    return theta.detach()


CASES = [
    (Sgd(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    (
        Sgd(lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    ),
    (Adam(lr=0.05), lambda p: torch.optim.Adam(p, lr=0.05)),
    (
        Adam(lr=0.05, beta1=0.5, beta2=0.9, eps=1e-3, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1),
    ),
    (
        Adam(lr=0.05, beta2=0.99, weight_decay=0.4, decoupled=True),
        lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.9, 0.99), weight_decay=0.4),
    ),
]


@looped("solver, optimizer_of", CASES)
def test_what_a_solver_remembers_goes_on_as_torchs_does(solver: MinibatchSolver, optimizer_of) -> None:
    world = Quadratics()
    start, stats = torch.zeros(4, 5, dtype=torch.float64), torch.zeros(4, 0)
    memory = solver.init_persistent(4, start[0])
    for num_rounds in (1, 2, 3):
        before = [tensor.clone() for tensor in memory]
        result = solver.run(world, start, stats, (0, 1), memory=memory)
        assert all(torch.equal(tensor, old) for tensor, old in zip(memory, before))
        memory = result.memory
        for client in range(4):
            expected = _torch(optimizer_of, client, start[client], num_rounds)
            assert torch.allclose(result.value[client], expected, rtol=0, atol=1e-12)
    assert memory[-1][:, 0].tolist() == [3 * steps for steps in STEPS]
    alone = solver.run(world, start, stats, (0, 1))
    assert alone.memory == ()
    assert not start.any()
    for client in range(4):
        assert torch.allclose(alone.value[client], _torch(optimizer_of, client, start[client]), rtol=0, atol=1e-12)


def test_loss_is_the_mean_over_a_clients_own_steps() -> None:
    world = Quadratics()
    result = Sgd(lr=1e-12).run(world, torch.zeros(4, 5, dtype=torch.float64), torch.zeros(4, 0), (0, 1))
    assert torch.allclose(result.loss, 0.5 * (world.h * world.centre.square()).sum(1))


def test_gradient_hook_changes_the_gradient() -> None:
    world = Quadratics()
    steps = []

    def double(theta, batch, step):
        steps.append((step, batch.num_rows))
        plain = world.gradient(theta, batch, step)
        return Gradient(2 * plain.grad, plain.loss, plain.stats)

    start = torch.zeros(4, 5, dtype=torch.float64)
    hooked = Sgd(lr=0.1).run(world, start, torch.zeros(4, 0), (0, 1), double)
    assert torch.allclose(hooked.value, Sgd(lr=0.2).run(world, start, torch.zeros(4, 0), (0, 1)).value)
    assert steps == [(0, 4), (1, 3), (2, 3), (3, 3), (4, 1), (5, 1)]


def test_clip() -> None:
    grad = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert torch.allclose(clip(grad, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_schedules() -> None:
    factor = learning_rate_factor
    assert [factor("constant", 0.1, (r, 5)) for r in (0, 4)] == [1, 1]
    assert [factor("linear", 0.2, (r, 5)) for r in (0, 2, 4)] == pytest.approx([1, 0.6, 0.2])
    assert [factor("cosine", 0.0, (r, 5)) for r in (0, 2, 4)] == pytest.approx([1, 0.5, 0])
    assert factor("inverse_sqrt", 0, (3, 9)) == 0.5
    assert factor("exponential", 0.9, (3, 9)) == pytest.approx(0.729)
    assert math.isclose(factor("linear", 0.5, (0, 1)), 1)


DECAYING = [Sgd(lr=0.05, weight_decay=0.5), Adam(lr=0.05, weight_decay=0.5, decoupled=True)]


@looped("solver", DECAYING)
def test_schedule_reaches_the_step(solver: LocalSolver) -> None:
    world, start = Quadratics(), torch.ones(4, 5, dtype=torch.float64)
    late = replace(solver, lr=0.1, schedule="inverse_sqrt").run(world, start, torch.zeros(4, 0), (3, 10))
    assert torch.allclose(late.value, solver.run(world, start, torch.zeros(4, 0), (0, 10)).value)


def test_a_factor_of_0_is_none_of_an_exponential_schedule() -> None:
    with pytest.raises(ValueError, match=r"client.schedule=exponential multiplies .* client.lr_final=0.99"):
        Sgd(lr=1, schedule="exponential")


MU = 0.7
START = torch.tensor([0.5, -1.0, 0.0, 2.0, 0.3], dtype=torch.float64)


@looped("solver, optimizer_of", CASES)
def test_is_torchs_with_the_penalty_in_the_loss(solver: LocalSolver, optimizer_of) -> None:
    world = Quadratics()
    begin = torch.stack([START * scale for scale in (1.0, 2.0, -1.0, 0.0)])
    result = replace(solver, proximal=MU).run(world, begin, torch.zeros(4, 0), (0, 1))
    for client in range(4):
        assert torch.allclose(result.value[client], _torch(optimizer_of, client, begin[client], mu=MU), atol=1e-12)
    plain = solver.run(world, begin, torch.zeros(4, 0), (0, 1))
    assert not torch.allclose(result.value, plain.value, rtol=0, atol=1e-4)


def test_the_pull_is_clipped_with_the_gradient() -> None:
    world, begin = Quadratics(), torch.full((4, 5), 100.0, dtype=torch.float64)
    result = Sgd(lr=0.1, clip_norm=1.0, proximal=50.0).run(world, begin, torch.zeros(4, 0), (0, 1))
    assert float((result.value - begin).norm(dim=1)[0]) <= 0.1 * STEPS[0] + 1e-9


def test_a_hook_draws_anew_in_every_step() -> None:
    drawn = Hook(lambda theta, batch, reads: reads.draws.uniform(torch.arange(2), 3), "draws", (), (), Key())
    first, again, second = (drawn(torch.zeros(2, 1), None, step) for step in (0, 0, 1))  # type: ignore[arg-type]
    assert torch.equal(first, again)
    assert (first != second).all()


def test_one_weight_a_client_and_one_for_all_and_any_hook_beneath() -> None:
    world = Quadratics()
    shift = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weight = torch.tensor([[0.0], [1.0], [2.0], [3.0]], dtype=torch.float64)

    def doubled(theta: Tensor, batch: Batch, step: int) -> Gradient:
        plain = world.gradient(theta, batch, step)
        return Gradient(2 * plain.grad, plain.loss, plain.stats)

    hook = Hook(lambda theta, batch, reads: doubled(theta, batch, reads.step), "doubled", (), (), Key())
    theta = shift + 1
    for active in (4, 3):
        batch = Batch(world.centre[:active], torch.zeros(active, 1), None, torch.zeros(active, 0))
        for inner, factor in ((None, 1), (doubled, 2), (hook, 2)):
            expected = factor * world.gradient(theta[:active], batch, 2).grad + shift[:active]
            for given in (weight, 0.5, 0.0):
                found = shifted_gradient(world, shift, given, inner)
                assert isinstance(found, Hook) == (inner is not doubled)
                more = given[:active] if isinstance(given, Tensor) else given
                got = found(theta[:active], batch, 2)
                assert torch.allclose(got.grad, expected + more * theta[:active], atol=1e-12)
                assert torch.equal(got.loss, world.gradient(theta[:active], batch, 2).loss)
