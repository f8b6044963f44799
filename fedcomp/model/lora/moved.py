"""Adapters over a moved base: the adapted matrices W with a change added to each, the same for all clients.

The model's own frozen tensors stay as they are; those that are moved lie once on the device beside them.

Shape legend: o outputs, i inputs of an adapted matrix; n the sum of o i over all.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fedcomp.model.contract import AnyModel, Model
from fedcomp.model.flat import copy_sharing_frozen, frozen_tensors
from fedcomp.model.lora.linear import LoraLinear


def moved(model: AnyModel, change: Tensor) -> AnyModel:
    """The model over W + change; `model` itself for a change of no entries.

    Args:
        change: [n] of each matrix in the order of the model, row by row [o, i]. Added in float32, whatever type W has.
    Raises:
        ValueError: an adapted matrix is shared with another part of the module, which would move too.
    """
    if not change.numel():
        return model
    assert isinstance(model, Model), "only networks have adapters"
    base = model.frozen_on(change)
    return model.with_frozen({name: _sum(layer, base[name], own) for name, layer, own in _each(model.module, change)})


def moved_module(module: nn.Module, change: Tensor) -> nn.Module:
    """A copy of the module over W + change, with own frozen tensors there and the module's elsewhere; as `moved`."""
    copy = copy_sharing_frozen(module)
    for name, layer, own in list(_each(copy, change)) if change.numel() else []:
        weight = nn.Parameter(_sum(layer, copy.get_parameter(name), own), requires_grad=False)
        layer.base.register_parameter("weight", weight)
    return copy


def _each(module: nn.Module, change: Tensor) -> Iterator[tuple[str, LoraLinear, Tensor]]:
    """(name of its weight, adapted layer, its change [o, i])."""
    layers = [(name, part) for name, part in module.named_modules() if isinstance(part, LoraLinear)]
    known = frozen_tensors(module)
    for (name, layer), own in zip(layers, change.split([one.outputs * one.inputs for _, one in layers]), strict=True):
        weight = f"{name}.base.weight"
        if weight not in known:
            raise ValueError(
                f"the adapted layer {name} shares its weight with another part of the model, which would move with it: "
                "leave it out of model.targets"
            )
        yield weight, layer, own.view(layer.outputs, layer.inputs)


@torch.no_grad()
def _sum(layer: LoraLinear, weight: Tensor, change: Tensor) -> Tensor:
    own = change.mT if _is_transposed(layer) else change
    return (weight.detach().float() + own.to(weight.device, torch.float32)).to(weight.dtype)


def _is_transposed(layer: LoraLinear) -> bool:
    """Whether the base keeps W as [i, o], as GPT-2's layers do: seen by an input, since o may equal i."""
    if isinstance(layer.base, nn.Linear):
        return False
    weight = layer.base.get_parameter("weight")
    if layer.inputs != layer.outputs:
        return tuple(weight.shape) == (layer.inputs, layer.outputs)
    x = torch.zeros(1, layer.inputs, dtype=weight.dtype, device=weight.device)
    x[0, 0] = 1
    column = (layer.base(x) - layer.base(torch.zeros_like(x)))[0]  # W's first column [o]
    return bool((column - weight[0]).norm() < (column - weight[:, 0]).norm())
