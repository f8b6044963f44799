"""A linear layer with an adapter, where adapters are put, and adapters over a moved base."""

import pytest
import torch
from torch import Tensor, nn

from fedcomp.model.build import build
from fedcomp.model.contract import Batch, Model
from fedcomp.model.flat import draw, reset
from fedcomp.model.lora.add import add_lora
from fedcomp.model.lora.linear import LoraLinear, by_client
from fedcomp.model.lora.moved import moved, moved_module
from fedcomp.model.loss import loss_of
from fedcomp.random.keys import Key
from tests.conformance import world
from tests.looped import looped
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head
from tests.model.test_frozen import FORMS
from tests.model.test_gradient import COHORTS, check
from tests.refused import refused

LOSS = loss_of("classification")
KEY = Key(("test", "lora"))


def net() -> nn.Module:
    parts = {"first": nn.Linear(5, 6), "act": nn.ReLU(), "last": nn.Linear(6, 3)}
    module = nn.Sequential()
    for name, part in parts.items():
        module.add_module(name, part)
    return module


def test_it_adds_the_product_of_the_factors() -> None:
    layer = LoraLinear(nn.Linear(5, 6), 5, 6, 2, 1.5)
    x = torch.randn(4, 7, 5)
    assert torch.equal(layer(x), layer.base(x))
    nn.init.normal_(layer.lora_B)
    whole = layer.base.weight + 1.5 * layer.lora_B @ layer.lora_A
    torch.testing.assert_close(layer(x), x @ whole.T + layer.base.bias)


@looped("cohort", COHORTS)
@looped("form", ["vmap", "one after another"])
@looped("make", [lora_mlp, lora_mlp_b, lora_mlp_head])
def test_gradients_are_the_modules_own(form, make, cohort) -> None:
    model = FORMS[form](draw(make, KEY), (5,))
    check(model, LOSS, *COHORTS[cohort], (5,), 3, "classification")


def test_one_adapter_a_client() -> None:
    x, weight, bias = torch.randn(6, 4, 5), torch.randn(3, 7, 5), torch.randn(3, 7)
    found = by_client(x, weight, bias)
    for client in range(3):
        own = slice(2 * client, 2 * client + 2)
        torch.testing.assert_close(found[own], x[own] @ weight[client].T + bias[client])


def test_first_values() -> None:
    layer = draw(lambda: LoraLinear(nn.Linear(32, 16), 32, 16, 400, 1.0), KEY)
    largest = float(layer.lora_A.detach().abs().max())
    assert 0.999 * 32**-0.5 < largest <= 32**-0.5
    assert not layer.lora_B.any()
    for rank in (4, 40):
        a = LoraLinear(nn.Linear(32, 16), 32, 16, rank, 1.0, a_init="orthonormal").lora_A.detach()
        assert float(a.square().sum()) == pytest.approx(rank / 3)
        values = torch.linalg.svdvals(a)
        assert float(values.max()) == pytest.approx(float(values.min()))


def test_adapters_come_from_the_key_and_the_base_stays() -> None:
    models = [build(lora_mlp, key, (5,), 3, "classification") for key in (KEY, KEY.fold_in(1))]
    assert not torch.equal(models[0].init(KEY)[0], models[0].init(KEY.fold_in(1))[0])
    assert torch.equal(models[0].init(KEY)[0], models[1].init(KEY)[0])
    for name, tensor in models[0].frozen.items():
        assert torch.equal(tensor, models[1].frozen[name])


def test_a_frozen_a_keeps_its_first_value() -> None:
    module = draw(lora_mlp_b, KEY)
    before = module[0].lora_A.clone()
    assert torch.equal(reset(module)[0].lora_A, before)
    assert not torch.equal(draw(lora_mlp_b, KEY.fold_in(1))[0].lora_A, before)


def test_targets_are_chosen_by_name() -> None:
    module = add_lora(net(), 2, targets=["last"])
    assert isinstance(module.last, LoraLinear)
    assert isinstance(module.first, nn.Linear)
    assert [name for name, one in module.named_parameters() if one.requires_grad] == ["last.lora_A", "last.lora_B"]
    assert Model(add_lora(net(), 2, 4.0, rslora=True)).tensors[0].lora.scale == pytest.approx(4 / 2**0.5)


test_wrong_options = refused(
    [
        ({"targets": ["q_proj"]}, "no linear layer is called q_proj; there are first, last"),
        ({"targets": "first"}, "model.targets=first must be all-linear, or a list"),
        ({"targets": []}, "model.targets is empty"),
        ({"rank": 0}, "model.rank=0 must be a whole number, 1 or more"),
        ({"alpha": 0}, "model.alpha=0 must be a positive number"),
        ({"dropout": 1.0}, r"model.dropout=1.0 must be a number in \[0, 1\)"),
        ({"trains": "a"}, "model.trains=a must be one of both, b"),
        ({"a_init": "zero"}, "model.a_init=zero must be one of uniform, orthonormal"),
    ],
    lambda **options: add_lora(net(), **options),
)


def test_a_rank_beyond_the_matrix_is_noted(caplog) -> None:
    add_lora(net(), 4)
    assert "model.rank=4 is more than the 3 inputs or outputs" in caplog.text


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


@looped("dtype", [torch.float32, torch.float64])
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
