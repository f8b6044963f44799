"""DeComFL: FedAvg of local zeroth-order SGD; moments of the two-point estimate in closed form."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from fedcomp.algorithm.zeroth_order.decomfl import DeComFL, SharedDirections
from fedcomp.algorithm.zeroth_order.two_point import TwoPoint, directions_at_once
from fedcomp.client import Batch, Batching
from fedcomp.compressor.projections.directions import Distribution
from fedcomp.compressor.seed import seed_number
from fedcomp.wire import Ledger
from tests.algorithm.heterogeneous import Chunk, D, Heterogeneous, problem
from tests.algorithm.zeroth_order.objectives import NotingLink, cohort_of, context, first_state
from tests.conformance import world
from tests.looped import looped
from tests.refused import refused


@looped("difference", ["central", "forward"])
def test_the_server_ends_at_the_mean_of_local_models(difference: str) -> None:
    """K = 3, P = 2, momentum and weight decay, against a loop over clients."""
    clients, steps, num, lr, momentum, decay = problem(), 3, 2, 0.02, 0.7, 0.05
    moving = {"lr": lr, "momentum": momentum, "weight_decay": decay}
    algorithm = DeComFL(steps=steps, perturbations=num, mu=1e-2, difference=difference, **moving)
    state = first_state(algorithm, clients)
    for index in range(2):
        ctx = context(clients, index)
        words = ctx.sender_key("direction").fold_in("seed").bits(torch.arange(steps), 2)
        z = algorithm.directions(seed_number(words), num, 0, D).double()
        ends, speeds = [], []
        for client in (0, 1, 3):
            y, v = state.theta.double(), state.velocity.double()

            def loss(x, client=client):
                error = x - clients.centres[client]
                return error @ clients.hessians[client] @ error / 2

            for k in range(steps):
                back = 1e-2 if difference == "central" else 0.0
                g = [(loss(y + 1e-2 * one) - loss(y - back * one)) / (1e-2 + back) for one in z[k]]
                v = momentum * v + (g[0] * z[k, 0] + g[1] * z[k, 1]) / 2 + decay * y
                y = y - lr * v
            ends.append(y)
            speeds.append(v)
        state, _ = algorithm.round(state, cohort_of(0, 1, 3), ctx)
        assert torch.allclose(state.theta.double(), torch.stack(ends).mean(0), atol=2e-6)
        assert torch.allclose(state.velocity.double(), torch.stack(speeds).mean(0), atol=2e-5)
    assert state.theta.norm() > 0.1


def test_stages_change_rate_and_directions_on_top_of_the_schedule() -> None:
    changes = DeComFL(perturbations=3, lr=0.1, stages={5: [0.3, 4], 2: [0.5, 2]})
    found = [changes.size_and_number((index, 10)) for index in (0, 1, 2, 4, 5, 9)]
    assert [num for _, num in found] == [3, 3, 6, 6, 12, 12]
    assert [lr for lr, _ in found] == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.03, 0.03])
    falling = DeComFL(lr=0.1, schedule="linear", stages={2: [0.5, 2]})
    rates = [falling.size_and_number((index, 5))[0] for index in range(5)]
    assert rates == pytest.approx([0.1, 0.075, 0.025, 0.0125, 0.0])


def test_the_last_round_of_a_linear_schedule_sends_scalars_and_moves_nothing() -> None:
    clients, algorithm = problem(), DeComFL(lr=0.01, schedule="linear")
    state, _ = algorithm.round(first_state(algorithm, clients), cohort_of(0, 1), context(clients, 0, num_rounds=3))
    link = NotingLink(Ledger())
    after, metrics = algorithm.round(state, cohort_of(0, 1), context(clients, 2, link, num_rounds=3))
    assert torch.equal(after.theta, state.theta)
    assert link.ledger.counters()["uplink"] == 2 * 20 * 32
    assert metrics["message/scalar"].min() > 0


def test_losses_of_a_step_are_of_one_batch_and_directions_of_all_clients() -> None:
    """Scalars [M, K P] of a network equal those of its own losses at y + mu z and y - mu z."""
    algorithm = DeComFL(steps=1, perturbations=4, mu=1e-2, batch_size=4)
    sim = world.in_float64(world.simulation(algorithm, participation=world.FULL))
    state = sim.init()
    link = NotingLink(Ledger())
    after, _ = replace(sim, link=lambda _: link).round(0, state, link.ledger)
    z = algorithm.directions(after.history.numbers[0], 4, 0, sim.model.dim)[0].double()
    executor = sim.clients(sim.round_key(0).fold_in("client"), Ledger())

    def plain(data, y):
        x, targets, weight = next(data.batches(Batching(4, steps=1)))
        batch = Batch(x, targets, weight, y[:, :0])
        sides = [[data.gradient(y + sign * 1e-2 * one, batch, 0).loss for one in z] for sign in (1, -1)]
        return (torch.stack(sides[0], 1) - torch.stack(sides[1], 1)) / 2e-2

    cohort = sim.cohort(0)
    wanted = executor.map_clients(plain, cohort, state.theta.expand(cohort.size, -1))
    assert torch.allclose(link.received.fields["scalars"].data.double(), wanted.double(), rtol=1e-5, atol=1e-6)


def test_the_true_steps_noise_is_that_of_the_directions() -> None:
    """`estimate/variance` of one central step on quadratics is (D + 1) / P in the mean."""
    clients = problem()
    algorithm = DeComFL(steps=1, perturbations=4, lr=0.01, diagnose=True)
    state, seen = first_state(algorithm, clients), []
    for index in range(120):
        _, metrics = algorithm.round(state, cohort_of(0, 1), context(clients, index))
        seen.append(metrics["estimate/variance"])
    found = torch.stack(seen)
    assert abs(float(found.mean()) - (D + 1) / 4) < 5 * float(found.std()) / 120**0.5


def test_no_gradient_is_counted() -> None:
    sim = world.simulation(DeComFL(steps=2, perturbations=3, difference="forward", batch_size=4))
    ledger = Ledger()
    _, result = sim.round(0, sim.init(), ledger)
    assert ledger.counters()["gradients"] == 0
    assert result.metrics["evaluations"] == 2 * (3 + 1)


test_wrong_options = refused(
    [
        ({"schedule": "exponential"}, "algorithm.lr_final in every round, which is 0"),
        ({"lr_final": 2.0}, "algorithm.lr_final=2.0"),
        ({"stages": 0.5}, "algorithm.stages=0.5 must be a mapping"),
        ({"stages": {3: [0.5]}}, "algorithm.stages has 3"),
        ({"stages": {3: [0.5, 1.5]}}, "algorithm.stages has 3"),
        ({"stages": {-1: [0.5, 1]}}, "algorithm.stages has -1"),
        ({"sends": "model", "verify_replay": True}, "algorithm.verify_replay=true needs clients that repeat"),
    ],
    DeComFL,
)


P, DRAWS, SIDE = 4, 20_000, 20


def _agrees(samples: Tensor, expected: Tensor | float) -> None:
    """The mean over the first axis is within 5 standard errors."""
    error = samples.std(0) / len(samples) ** 0.5
    assert ((samples.mean(0) - expected).abs() <= 5 * error + 1e-12).all(), (samples.mean(0), expected, error)
    assert (error < 0.02 * samples.abs().mean(0).clamp(min=1e-9) + 0.05).all()  # the test can tell


@looped("distribution", get_args(Distribution))
def test_mean_second_moment_and_curvature(distribution: str) -> None:
    """Of (1/P) sum_p g_p z_p at x, over draws of directions."""
    x, hessians, centres = (
        torch.linspace(-1, 1, SIDE),
        problem().hessians[:1, :SIDE, :SIDE],
        problem().centres[:1, :SIDE],
    )
    g, hessian = Heterogeneous(hessians, centres).gradients(x)[0], hessians[0]
    two_point, draws = TwoPoint(1e-2, "central", distribution), torch.arange(DRAWS)
    z, first = two_point.directions(draws, P, 0, SIDE), torch.zeros(DRAWS, 1, dtype=torch.int64)
    batch = Batch(first, first, None, torch.zeros(DRAWS, 0))
    slopes, _ = two_point.scalars(Chunk(draws, hessians, centres), x.double().expand(DRAWS, -1), z, batch, 0, None)
    found = (slopes.double()[:, :, None] * z.double()).mean(1)
    _agrees(found, g)
    more = {"gaussian": SIDE + 1, "rademacher": SIDE - 1, "sphere": SIDE - 1}[distribution]
    _agrees(found.square().sum(1), (1 + more / P) * g.square().sum())
    both = hessian.trace() * g.square().sum() + 2 * (g @ hessian @ g)
    if distribution == "rademacher":
        both = both - 2 * (hessian.diagonal() * g.square()).sum()
    if distribution == "sphere":
        both = both * SIDE / (SIDE + 2)
    _agrees(((found @ hessian) * found).sum(1), both / P + (1 - 1 / P) * (g @ hessian @ g))


@looped("distribution", get_args(Distribution))
def test_a_direction_is_named_by_seed_and_number_alone(distribution: str) -> None:
    two_point = TwoPoint(1e-3, "central", distribution)
    whole = two_point.directions(torch.tensor([3, 9]), 5, 0, 131)
    assert torch.equal(two_point.directions(torch.tensor([9]), 2, 3, 131)[0], whole[1, 3:])
    assert not torch.equal(whole[0], whole[1])
    assert not torch.equal(whole[0, 0], whole[0, 1])
    for keep in (True, False):
        groups = list(SharedDirections(two_point, torch.tensor([3, 9]), 5, 131, keep).groups(1, 2))
        assert [(part.start, part.stop) for part, _ in groups] == [(0, 2), (2, 4), (4, 5)]
        assert torch.equal(torch.cat([z for _, z in groups]), whole[1])
    shapes = ((0, 9), (4, 1024), (9, 1 << 20))
    assert [directions_at_once(torch.empty(1).expand(*of)) for of in shapes] == [1 << 20, 128, 1]
    with FakeTensorMode():
        assert directions_at_once(torch.empty(4, 1024, device="cuda")) == 4096
