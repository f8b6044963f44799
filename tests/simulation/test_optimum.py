"""The optimum of a linear regression: against plain minimisation, with ragged agents and several outputs."""

from functools import partial

import pytest
import torch
from torch import nn

from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.build import build
from fedcomp.model.networks.linear import linear
from fedcomp.model.networks.mlp import mlp
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.optimum import least_squares
from tests.conformance import world
from tests.looped import looped
from tests.training.sessions import fedavg

KEY, CPU = Key(("optimum",)), torch.device("cpu")
SIZES = (5, 1, 9, 3)


def _problem(outputs: int, bias: bool, factory=linear):
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(20, 4, generator=generator), torch.randn(20, outputs, generator=generator)
    samples, ones = Samples(x, y), torch.ones(4)
    data = Dataset("toy", samples, samples, "regression", outputs, mean=ones, std=2 * ones)
    model = build(partial(factory, bias=bias) if factory is linear else factory, KEY, (4,), outputs, "regression")
    order = torch.randperm(18, generator=generator)
    return model, data, ClientShards.of(list(order.split(list(SIZES))), CPU)


@looped("bias", [True, False])
@looped("outputs", [1, 3])
@looped("weights", ["uniform", "samples"])
def test_excess_is_the_agents_objective_above_its_minimum(outputs: int, bias: bool, weights: str) -> None:
    model, data, shards = _problem(outputs, bias)
    importance = torch.tensor(SIZES).double() if weights == "samples" else torch.ones(4, dtype=torch.float64)
    best = least_squares(model, data, shards, importance)
    assert best is not None

    def objective(theta: torch.Tensor) -> torch.Tensor:
        module, total = nn.Linear(4, outputs, bias=bias).double(), torch.zeros((), dtype=torch.float64)
        parts = theta.split([one.numel() for one in module.parameters()])
        named = {name: part.view(one.shape) for (name, one), part in zip(module.named_parameters(), parts)}
        for share, part in zip(importance / importance.sum(), shards.order.split(list(SIZES))):
            x, y = data.normalise(data.train.x[part]).double(), data.train.y[part].double()
            total = total + share * (torch.func.functional_call(module, named, (x,)) - y).square().mean()
        return total

    theta = best.theta.clone().requires_grad_()
    value = objective(theta)
    assert value.item() == pytest.approx(best.minimum, rel=1e-12)
    (gradient,) = torch.autograd.grad(value, theta)
    assert gradient.abs().max() < 1e-12
    away = best.theta + torch.randn(2, len(best.theta), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([objective(one) for one in away]) - best.minimum
    assert torch.allclose(best.excess(away), expected.detach(), rtol=1e-9)
    assert best.excess(best.theta[None]).item() == 0


def test_features_that_say_the_same_have_an_optimum_too() -> None:
    model, data, shards = _problem(1, False)
    twice = data.train.x.clone()
    twice[:, 1] = twice[:, 0]
    data = Dataset("toy", Samples(twice, data.train.y), data.test, "regression", 1)
    best = least_squares(model, data, shards, torch.ones(4, dtype=torch.float64))
    assert torch.isfinite(best.theta).all()
    other = best.theta + torch.tensor([1.0, -1.0, 0, 0])
    assert best.excess(other[None]).abs() < 1e-12


def test_other_models_have_none() -> None:
    ones = torch.ones(4, dtype=torch.float64)
    assert least_squares(*_problem(1, True, mlp), ones) is None
    sim = world.simulation(fedavg())
    assert least_squares(sim.model, sim.dataset, sim.shards, torch.ones(7, dtype=torch.float64)) is None
