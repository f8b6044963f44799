"""Adapters over a moved base."""

import pytest
import torch
from torch import Tensor, nn

from fedcomp.model.contract import Batch
from fedcomp.model.flat import draw
from fedcomp.model.lora.add import add_lora
from fedcomp.model.lora.moved import moved, moved_module
from fedcomp.random.keys import Key
from tests.conformance import world


class Transposed(nn.Module):
    """x W^T + b that keeps W as [i, o], as GPT-2's layers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


def _size(part: nn.Module) -> tuple[int, int] | None:
    if isinstance(part, Transposed):
        return part.weight.shape[0], part.weight.shape[1]
    return (part.in_features, part.out_features) if type(part) is nn.Linear else None


def _network() -> nn.Module:
    """A plain layer, a transposed one that is square and one that is not."""

    def base() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), Transposed(6, 6), nn.Tanh(), Transposed(6, 3))

    return add_lora(draw(base, Key(("base",))), 2, 4.0, size=_size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_and_gradients_are_those_of_weights_with_the_change_added(dtype: torch.dtype) -> None:
    model = world.model_of(_network(), world.dataset())
    theta, stats = model.init(Key(("theta",)))
    change = torch.randn(30 + 36 + 18)
    before = {name: tensor.clone() for name, tensor in model.frozen.items()}
    other = moved(model, change)
    x, y = world.dataset().train.x[:8].to(dtype), world.dataset().train.y[:8]
    by_hand = _network()
    first, square, last = change.split([30, 36, 18])
    with torch.no_grad():
        by_hand[0].base.weight += first.view(6, 5)
        by_hand[2].base.weight += square.view(6, 6).T
        by_hand[4].base.weight += last.view(3, 6).T
    plain = world.model_of(by_hand, world.dataset())
    theta = theta.to(dtype)
    outputs = other.outputs(theta, stats, x)
    assert torch.allclose(outputs, plain.outputs(theta, stats, x), atol=1e-6)
    assert not torch.allclose(outputs, model.outputs(theta, stats, x), atol=1e-2)
    rows = theta.expand(2, -1), Batch(x.view(2, 4, -1), y.view(2, 4), None, stats.expand(2, -1))
    assert torch.allclose(other.gradient(*rows).grad, plain.gradient(*rows).grad, atol=1e-6)
    module = moved_module(model.module, change)
    assert torch.allclose(module(x.float()), by_hand(x.float()), atol=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.frozen.items())


def test_what_does_not_move_is_shared() -> None:
    model = world.model_of(_network(), world.dataset())
    assert moved(model, torch.empty(0)) is model
    other = moved(model, torch.ones(84))
    theta = torch.zeros(1)
    shared = {name for name, tensor in other.frozen_on(theta).items() if tensor is model.frozen_on(theta)[name]}
    assert {name.rpartition(".")[2] for name in shared} == {"bias"}


def test_a_tied_weight_is_refused() -> None:
    base = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Linear(5, 3))
    base[2].weight = base[0].weight
    model = world.model_of(add_lora(base, 1, targets=["2"]), world.dataset())
    with pytest.raises(ValueError, match="2 shares its weight with another part"):
        moved(model, torch.ones(25))
