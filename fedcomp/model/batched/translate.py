"""An ordinary `nn.Sequential` as a chain of stacked layers, or None where it holds a layer that has no stacked form."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.model.batched.batch_norm import BatchNorm
from fedcomp.model.batched.convolution import Convolution
from fedcomp.model.batched.dropout import Dropout
from fedcomp.model.batched.layers import Activation, Flatten, Layer, Linear, Pooling

# A max-pool behind one of these may be computed before it, on a quarter of the values: they never decrease.
_COMMUTE_WITH_MAX = (nn.ReLU,)
_NEEDS_IMAGES = (nn.Conv2d, nn.BatchNorm2d, nn.Dropout2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
_NEEDS_FEATURES = (nn.Linear, nn.BatchNorm1d)
# ReLU may overwrite what these return: no backward pass reads it.
_OUTPUT_UNUSED = (nn.Linear, nn.Conv2d, nn.BatchNorm1d, nn.BatchNorm2d, nn.MaxPool2d, nn.AvgPool2d)


def translate(module: nn.Module, images: bool | None = None) -> list[Layer] | None:
    """The chain of stacked layers that computes what `module` does, or None.

    `images`: whether inputs are images [C, H, W] (True), features [F] (False) or not known (None).

    Known: Linear, Conv2d (zero padding), BatchNorm1d and 2d, ReLU, LeakyReLU, GELU, Tanh, Sigmoid, MaxPool2d,
    AvgPool2d, AdaptiveAvgPool2d, Flatten, Dropout, Dropout2d, Identity, and Sequentials of them, each of
    exactly that type: a subclass may compute something else.
    """
    parts = _chain(module)
    if parts is None:
        return None
    parts = _pool_first(parts)
    frozen_last = sorted(module.parameters(), key=lambda parameter: not parameter.requires_grad)
    places = {id(parameter): place for place, parameter in enumerate(frozen_last)}
    floats = (buffer for buffer in module.buffers() if buffer.is_floating_point())
    places |= {id(buffer): place for place, buffer in enumerate(floats)}
    layers: list[Layer] = []
    before: nn.Module | None = None
    norms: set[int] = set()
    for part in parts:
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            if id(part) in norms:
                return None  # its statistics would be updated twice in one pass
            norms.add(id(part))
        layer = _layer(part, before, places)
        wrong = (_NEEDS_FEATURES if images else _NEEDS_IMAGES) if images is not None else ()
        if layer is None or isinstance(part, wrong):
            return None
        if isinstance(part, (*_NEEDS_FEATURES, *_NEEDS_IMAGES, nn.Flatten)):
            images = isinstance(part, _NEEDS_IMAGES)
        layers.append(layer)
        before = part
    return layers


def _chain(module: nn.Module) -> list[nn.Module] | None:
    """The parts of nested Sequentials in order, without those that do nothing; None where there is a hook."""
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return None
    if type(module).forward is not nn.Sequential.forward:
        without_dropout = isinstance(module, nn.modules.dropout._DropoutNd) and module.p == 0
        return [] if type(module) is nn.Identity or without_dropout else [module]
    assert isinstance(module, nn.Sequential)
    parts: list[nn.Module] = []
    for child in module:  # not `children()`, which skips a part that is used twice
        chain = _chain(child)
        if chain is None:
            return None
        parts += chain
    return parts


def _pool_first(parts: list[nn.Module]) -> list[nn.Module]:
    """ReLU then max-pool as max-pool then ReLU: the same values and gradients for less work."""
    parts = list(parts)
    for place in range(len(parts) - 1):
        if type(parts[place]) in _COMMUTE_WITH_MAX and type(parts[place + 1]) is nn.MaxPool2d:
            parts[place], parts[place + 1] = parts[place + 1], parts[place]
    return parts


def _layer(part: nn.Module, before: nn.Module | None, places: dict[int, int]) -> Layer | None:
    kind = type(part)
    if isinstance(part, nn.Linear) and kind is nn.Linear:
        return Linear(places[id(part.weight)], _place(part.bias, places))
    if kind is nn.Conv2d:
        return _convolution(part, places)
    if kind is nn.BatchNorm1d or kind is nn.BatchNorm2d:
        return _batch_norm(part, places)
    if kind is nn.Flatten:
        return Flatten() if (part.start_dim, part.end_dim) == (1, -1) else None
    if kind is nn.ReLU:
        return Activation(torch.relu_ if type(before) in _OUTPUT_UNUSED else torch.relu)
    if isinstance(part, nn.Dropout | nn.Dropout2d) and kind in (nn.Dropout, nn.Dropout2d):
        return Dropout(part.p, kind is nn.Dropout2d)
    return _pool(part) or _smooth(part)


def _convolution(part: nn.Module, places: dict[int, int]) -> Convolution | None:
    assert isinstance(part, nn.Conv2d)
    if part.padding_mode != "zeros":
        return None
    where = places[id(part.weight)], _place(part.bias, places)
    frozen = not part.weight.requires_grad
    return Convolution(*where, part.stride, part.padding, part.dilation, part.groups, frozen)


def _batch_norm(part: nn.Module, places: dict[int, int]) -> BatchNorm | None:
    assert isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d)
    if part.running_mean is None or part.running_var is None or part.momentum is None:
        return None
    affine = _place(part.weight, places), _place(part.bias, places)
    running = places[id(part.running_mean)], places[id(part.running_var)]
    return BatchNorm(*affine, *running, part.eps, part.momentum)


def _pool(part: nn.Module) -> Pooling | None:
    kind = type(part)
    if kind is nn.MaxPool2d and not part.return_indices:
        return Pooling(functional.max_pool2d, _options(part, "kernel_size stride padding dilation ceil_mode"))
    if kind is nn.AvgPool2d:
        names = "kernel_size stride padding ceil_mode count_include_pad divisor_override"
        return Pooling(functional.avg_pool2d, _options(part, names))
    if kind is nn.AdaptiveAvgPool2d:
        return Pooling(functional.adaptive_avg_pool2d, _options(part, "output_size"))
    return None


def _smooth(part: nn.Module) -> Activation | None:
    """Activations without parameters."""
    if type(part) is nn.LeakyReLU:
        return Activation(partial(functional.leaky_relu, negative_slope=part.negative_slope))
    if type(part) is nn.GELU:
        return Activation(partial(functional.gelu, approximate=part.approximate))
    if type(part) is nn.Tanh:
        return Activation(torch.tanh)
    if type(part) is nn.Sigmoid:
        return Activation(torch.sigmoid)
    return None


def _options(part: nn.Module, names: str) -> dict[str, object]:
    return {name: getattr(part, name) for name in names.split()}


def _place(tensor: Tensor | None, places: dict[int, int]) -> int | None:
    return None if tensor is None else places[id(tensor)]
