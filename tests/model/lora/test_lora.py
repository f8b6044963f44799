"""A linear layer with an adapter, and where adapters are put."""

import pytest
import torch
from torch import nn

from fedcomp.model.batched.functional import Functional
from fedcomp.model.build import build
from fedcomp.model.contract import Model
from fedcomp.model.flat import draw, reset
from fedcomp.model.lora.add import add_lora
from fedcomp.model.lora.linear import LoraLinear, by_client
from fedcomp.model.loss import loss_of
from fedcomp.random.keys import Key
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


@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("form", ["vmap", "one after another"])
@pytest.mark.parametrize("make", [lora_mlp, lora_mlp_b, lora_mlp_head])
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


def test_constants_of_a_module_are_no_statistics() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    module.register_buffer("angles", torch.ones(7), persistent=False)
    assert Functional(module, LOSS).num_stats == 8


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
