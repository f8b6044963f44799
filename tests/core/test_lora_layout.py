"""Where A and B of each adapter lie within rows."""

import pytest
import torch

from fedcomp.core.lora_layout import LoraLayout
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.model.contract import Model
from tests.lora_networks import lora_mlp, lora_mlp_b, lora_mlp_head


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
