"""Parts of a row of parameters."""

import pytest
import torch
from torch import nn

from fedcomp.core.parameter_layout import (
    BIAS,
    NORMALISATION,
    WEIGHT,
    ParameterSubset,
    ParameterTensor,
    is_normalisation,
)
from fedcomp.model.build import build
from fedcomp.model.networks.cnn_bn import cnn4_bn
from fedcomp.random.keys import Key

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
