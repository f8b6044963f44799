"""The proximal term of local solvers, and the hook that adds it: against torch.optim, at the fixed point, composed."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedcomp.client import Batch, Hook
from fedcomp.client.shifted_gradient import shifted_gradient
from fedcomp.model.contract import Gradient
from fedcomp.random.keys import Key
from tests.client.test_solver import STEPS, Quadratics
from tests.parts import Adam, LocalSolver, Sgd

MU = 0.7
START = torch.tensor([0.5, -1.0, 0.0, 2.0, 0.3], dtype=torch.float64)
SOLVERS = [
    (Sgd(lr=0.1, momentum=0.9, weight_decay=0.01), lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01)),
    (Adam(lr=0.05), lambda p: torch.optim.Adam(p, lr=0.05)),
]


@pytest.mark.parametrize(("solver", "optimizer_of"), SOLVERS, ids=["sgd", "adam"])
def test_is_torchs_with_the_penalty_in_the_loss(solver: LocalSolver, optimizer_of) -> None:
    world = Quadratics()
    begin = torch.stack([START * scale for scale in (1.0, 2.0, -1.0, 0.0)])
    result = replace(solver, proximal=MU).run(world, begin, torch.zeros(4, 0), (0, 1))
    for client in range(4):
        theta = begin[client].clone().requires_grad_()
        optimizer = optimizer_of([theta])
        for step in range(STEPS[client]):
            optimizer.zero_grad()
            loss = 0.5 * (world.h * (theta - world.centre[client]).square()).sum() + world.noise[step] @ theta
            (loss + MU / 2 * (theta - begin[client]).square().sum()).backward()
            optimizer.step()
        assert torch.allclose(result.value[client], theta.detach(), atol=1e-12)
    plain = solver.run(world, begin, torch.zeros(4, 0), (0, 1))
    assert not torch.allclose(result.value, plain.value, rtol=0, atol=1e-4)


def test_the_pull_is_clipped_with_the_gradient() -> None:
    world, begin = Quadratics(), torch.full((4, 5), 100.0, dtype=torch.float64)
    result = Sgd(lr=0.1, clip_norm=1.0, proximal=50.0).run(world, begin, torch.zeros(4, 0), (0, 1))
    assert float((result.value - begin).norm(dim=1)[0]) <= 0.1 * STEPS[0] + 1e-9


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
