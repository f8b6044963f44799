"""Parts of a row of parameters; where A and B of each adapter lie within it."""

import pytest
import torch
from torch import nn

from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.parameter_layout import (
    BIAS,
    NORMALISATION,
    WEIGHT,
    ParameterSubset,
    ParameterTensor,
    is_normalisation,
)
from fedcomp.model.build import build
from fedcomp.model.contract import Model
from fedcomp.model.networks.cnn_bn import cnn4_bn
from fedcomp.random.keys import Key
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head

TENSORS = (
    ParameterTensor(6, WEIGHT, 3),
    ParameterTensor(2, BIAS, 3),
    ParameterTensor(2, NORMALISATION),
    ParameterTensor(2, NORMALISATION),
    ParameterTensor(4, WEIGHT, 2),
)


def test_take_and_put_are_inverse() -> None:
    part, rows = (
        ParameterSubset.of(TENSORS, lambda tensor: not is_normalisation(tensor)),
        torch.arange(32.0).view(2, 16),
    )
    assert part.runs == ((0, 8), (12, 16))
    assert part.layers == (6, 2, 4)
    assert part.rest.runs == ((8, 12),)
    assert part.take(rows)[1].tolist() == [16, 17, 18, 19, 20, 21, 22, 23, 28, 29, 30, 31]
    before = rows.clone()
    swapped = part.put(rows, -part.take(rows))
    assert torch.equal(rows, before)
    assert torch.equal(part.put(swapped, part.take(rows)), rows)
    assert torch.equal(part.rest.take(swapped), part.rest.take(rows))


@pytest.mark.parametrize("everything", [True, False])
def test_all_and_nothing(everything: bool) -> None:
    part, row = ParameterSubset.of(TENSORS, lambda tensor: everything), torch.arange(16.0)
    whole, empty = (part, part.rest) if everything else (part.rest, part)
    assert whole.take(row) is row
    assert (whole.size, empty.size) == (16, 0)
    assert empty.take(row).shape == (0,)
    assert torch.equal(empty.put(row, torch.empty(0)), row)
    assert torch.equal(whole.put(row, -row), -row)


def test_what_a_networks_tensors_are() -> None:
    model = build(cnn4_bn, Key(("m",)), (1, 28, 28), 10, "classification")
    kinds = [tensor.kind for tensor in model.tensors]
    assert kinds == [WEIGHT, NORMALISATION, NORMALISATION] * 4 + [WEIGHT]
    assert [tensor.fan_in for tensor in model.tensors if tensor.kind == WEIGHT] == [9, 288, 576, 1152, 256]
    assert tuple(tensor.size for tensor in model.tensors) == model.layers
    assert sum(tensor.size for tensor in model.tensors if not is_normalisation(tensor)) == 389_920


def test_a_bias_has_its_layers_fan_in() -> None:
    model = build(lambda: nn.Linear(7, 3), Key(("m",)), (7,), 3, "classification")
    assert model.tensors == (ParameterTensor(21, WEIGHT, 7), ParameterTensor(3, BIAS, 7))


def test_factors_are_the_modules_own() -> None:
    """Also for a square A (r = i = 5) and another order than A before B."""
    model = Model(lora_mlp(rank=5))
    layout = LoraLayout.of(model.tensors)
    rows = torch.randn(3, model.dim)
    named = dict(zip([n for n, _ in model.module.named_parameters() if "lora" in n], model.parameters(rows)))
    for layer, (a, b) in zip(("0", "2"), layout.factors(rows), strict=True):
        assert torch.equal(a, named[f"{layer}.lora_A"])
        assert torch.equal(b, named[f"{layer}.lora_B"])
    turned = LoraLayout.of(model.tensors[::-1])
    assert turned.matrices[0].b == turned.matrices[0].a - turned.matrices[0].b_size
    assert [(one.rank, one.inputs, one.outputs, one.scale) for one in layout.matrices] == [
        (5, 5, 6, 0.8),
        (5, 6, 3, 0.8),
    ]


def test_put_takes_what_factors_gives() -> None:
    layout = LoraLayout.of(Model(lora_mlp_head()).tensors)
    rows, other = torch.randn(2, 2, layout.dim)
    changed = layout.put(rows, layout.factors(other))
    assert torch.equal(layout.rest.put(other, layout.rest.take(rows)), changed)
    assert not torch.equal(changed, rows)


def test_subsets_share_out_the_columns() -> None:
    layout = LoraLayout.of(Model(lora_mlp_head()).tensors)
    assert (layout.a.size, layout.b.size, layout.rest.size) == (10, 12, 21)
    row = torch.arange(layout.dim)
    assert torch.cat([part.take(row) for part in (layout.a, layout.b, layout.rest)]).sort().values.equal(row)


def test_a_frozen_a_is_not_in_the_row() -> None:
    layout = LoraLayout.of(Model(lora_mlp_b()).tensors)
    assert (layout.dim, layout.a.size, layout.b.size) == (18, 0, 18)
    with pytest.raises(ValueError, match="take model.trains=both"):
        layout.factors(torch.zeros(1, 18))


def test_a_model_without_adapters_is_refused() -> None:
    with pytest.raises(ValueError, match="has no low-rank adapters"):
        LoraLayout.of([ParameterTensor(3)])
