"""Moments of the two-point estimate in closed form.

D. Nesterov and V. Spokoiny 2017; the closed forms are for quadratics, on which the central difference is exact.
"""

from typing import get_args

import torch
from torch import Tensor

from fedcomp.algorithm.zeroth_order.two_point import TwoPoint
from fedcomp.client import Batch
from fedcomp.compressor.projections.directions import Distribution
from tests.algorithm.zeroth_order.objectives import Chunk, Quadratics
from tests.looped import looped
from tests.refused import refused

D, P, DRAWS = 20, 4, 20_000
NOTHING = torch.zeros(1, 0)


def _estimates(two_point: TwoPoint, objective: Quadratics, x: Tensor, num: int, draws: int = DRAWS) -> Tensor:
    """[draws, D] float64 (1/P) sum_p g_p z_p at x [D], each from directions of its own."""
    numbers = torch.arange(draws)
    z = two_point.directions(numbers, num, 0, len(x))
    y = x.double().expand(draws, -1)
    data = Chunk(numbers, objective.hessian, objective.centres[:1].expand(draws, -1))
    batch = Batch(data.centres, data.centres, None, NOTHING.expand(draws, -1))
    centre = data.losses(y[:, None], batch, 0)[0][:, 0] if two_point.at_centre else None
    g, _ = two_point.scalars(data, y, z, batch, 0, centre)
    return (g.double()[:, :, None] * z.double()).mean(1)


def _agrees(samples: Tensor, expected: Tensor | float) -> None:
    """The mean over the first axis is within 5 standard errors."""
    error = samples.std(0) / len(samples) ** 0.5
    assert ((samples.mean(0) - expected).abs() <= 5 * error + 1e-12).all(), (samples.mean(0), expected, error)
    assert (error < 0.02 * samples.abs().mean(0).clamp(min=1e-9) + 0.05).all()  # the test can tell


@looped("distribution", get_args(Distribution))
def test_mean_second_moment_and_curvature(distribution: str) -> None:
    objective = Quadratics.of(1, D)
    x = torch.linspace(-1, 1, D)
    g, hessian = objective.gradient(x)[0], objective.hessian
    found = _estimates(TwoPoint(1e-2, "central", distribution), objective, x, P)
    _agrees(found, g)
    more = {"gaussian": D + 1, "rademacher": D - 1, "sphere": D - 1}[distribution]
    _agrees(found.square().sum(1), (1 + more / P) * g.square().sum())
    both = hessian.trace() * g.square().sum() + 2 * (g @ hessian @ g)
    if distribution == "rademacher":
        both = both - 2 * (hessian.diagonal() * g.square()).sum()
    if distribution == "sphere":
        both = both * D / (D + 2)
    _agrees(((found @ hessian) * found).sum(1), both / P + (1 - 1 / P) * (g @ hessian @ g))


@looped("distribution", get_args(Distribution))
def test_a_direction_is_named_by_seed_and_number_alone(distribution: str) -> None:
    two_point = TwoPoint(1e-3, "central", distribution)
    whole = two_point.directions(torch.tensor([3, 9]), 5, 0, 131)
    assert torch.equal(two_point.directions(torch.tensor([9]), 2, 3, 131)[0], whole[1, 3:])
    assert not torch.equal(whole[0], whole[1])
    assert not torch.equal(whole[0, 0], whole[0, 1])


test_wrong_options = refused(
    [({"mu": 0.0}, "algorithm.mu=0.0 must be a number in"), ({"mu": float("inf")}, "algorithm.mu=inf")],
    lambda mu: TwoPoint(mu, "central", "gaussian"),
)
