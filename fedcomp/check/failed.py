"""What a check says of a part that does not pass."""

from typing import Any

import torch
from torch import Tensor

from fedcomp.core.pytree import flatten


class Failed(AssertionError):
    """A part does not pass a check. The text is the smallest example that was found."""


def require(passes: object, example: str) -> None:
    """Raise Failed, with an example in which it does not, unless a part `passes`."""
    if not passes:
        raise Failed(example)


def require_same(what: str, state: Any, wanted: Any) -> None:
    """Raise Failed unless two states (or their tensors by name) are the same bit for bit."""
    left, right = (one if isinstance(one, dict) else flatten(one) for one in (state, wanted))
    require(left.keys() == right.keys(), f"{what}: the state has {', '.join(left)} instead of {', '.join(right)}")
    for name, tensor in right.items():
        require(torch.equal(left[name], tensor), f"{what}: state.{name} {described(left[name], tensor)}")


def same(state: Any, wanted: Any) -> bool:
    """Whether two states (or their tensors by name) are the same bit for bit."""
    try:
        require_same("", state, wanted)
    except Failed:
        return False
    return True


def described(given: Tensor, wanted: Tensor) -> str:
    """The first entry in which a tensor differs from the one that was wanted."""
    if given.shape != wanted.shape or given.dtype != wanted.dtype:
        return f"is {given.dtype} {tuple(given.shape)} instead of {wanted.dtype} {tuple(wanted.shape)}"
    places = (given != wanted).nonzero()
    if not len(places):
        return "is the same"
    place = tuple(places[0].tolist())
    where = f"[{', '.join(map(str, place))}]" if place else ""
    more = f", as {len(places)} of {given.numel()} entries" if len(places) > 1 else ""
    return f"{where} is {given[place].item()} instead of {wanted[place].item()}{more}"
