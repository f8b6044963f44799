"""Finds what a module keeps outside its parameters and buffers: no checkpoint has it, and threads do not share it."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Attributes = dict[str, dict[str, Any]]
"""{name of a part: its attributes}."""

_TORCHS_OWN = vars(nn.Module()).keys()
"""Attributes of every module: its parameters, buffers, parts and hooks."""


def attributes(module: nn.Module) -> Attributes:
    """Copies of what every part keeps in attributes of its own."""
    own = {
        name: {key: value for key, value in vars(part).items() if key not in _TORCHS_OWN}
        for name, part in module.named_modules()
    }
    tensors = {id(one): one for one in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(own, {**tensors, **{id(part): part for part in module.modules()}})


def changed(before: Attributes, after: Attributes) -> str | None:
    """The name of an attribute that differs, such as "encoder.calls"; None: there is none."""
    for part, own in after.items():
        for name in own.keys() | before[part].keys():
            if name not in own or name not in before[part] or not _same(before[part][name], own[name]):
                return f"{part}.{name}" if part else name
    return None


def buffers(module: nn.Module) -> list[dict[str, Tensor | None]]:
    """Copies of the buffers of every part."""
    return [
        {name: None if buffer is None else buffer.clone() for name, buffer in part._buffers.items()}
        for part in module.modules()
    ]


def set_buffers(module: nn.Module, values: list[dict[str, Tensor | None]]) -> None:
    """Put the `buffers` of the same module back."""
    for part, own in zip(module.modules(), values, strict=True):
        part._buffers.update({name: None if value is None else value.clone() for name, value in own.items()})


def changed_count(module: nn.Module, before: list[dict[str, Tensor | None]]) -> str | None:
    """The name of a buffer that is no float and differs; None: there is none. BatchNorm's count has no effect."""
    for (path, part), own in zip(module.named_modules(), before, strict=True):
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.momentum is not None:
            continue
        for name, value in own.items():
            now = part._buffers[name]
            if value is not None and now is not None and not value.is_floating_point() and not torch.equal(value, now):
                return f"{path}.{name}" if path else name
    return None


def changed_constant(module: nn.Module, before: list[dict[str, Tensor | None]]) -> str | None:
    """The name of a float buffer with persistent=False that differs, by shape or value; None: there is none."""
    for (path, part), own in zip(module.named_modules(), before, strict=True):
        for name in sorted(part._non_persistent_buffers_set & own.keys()):
            value, now = own[name], part._buffers[name]
            if value is not None and now is not None and value.is_floating_point() and not _same(value, now):
                return f"{path}.{name}" if path else name
    return None


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and bool(np.all((one == other) | ((one != one) & (other != other))))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if hasattr(one, "__dict__") and not callable(one):
        return _same(vars(one), vars(other))
    try:
        return bool(one == other) or one != one or callable(one)
    except (RuntimeError, ValueError, TypeError):
        return True  # it cannot be compared
