"""Puts low-rank adapters on a network's linear layers, and freezes all else.

Shape legend: i inputs, o outputs, r rank.
"""

import logging
import math
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Literal

from torch import nn

from fedcomp.core.ranges import Whole, Within, checked
from fedcomp.model.lora.linear import LoraLinear

log = logging.getLogger("fedcomp")

ALL_LINEAR = "all-linear"
Rank = Annotated[int, Whole(meaning="the rank of an adapter")]
Alpha = Annotated[float, Within("(0, inf)", "the adapter is scaled by alpha / rank")]
Dropout = Annotated[float, Within("[0, 1)", "a probability")]
Trains = Literal["both", "b"]
AInit = Literal["uniform", "orthonormal"]
Size = Callable[[nn.Module], tuple[int, int] | None]
"""(i, o) of a linear layer; None for all other parts."""


@checked("model.")
def add_lora(
    module: nn.Module,
    rank: Rank = 8,
    alpha: Alpha = 8.0,
    targets: str | Sequence[str] = ALL_LINEAR,
    dropout: Dropout = 0.0,
    rslora: bool = False,
    trains: Trains = "both",
    a_init: AInit = "uniform",
    head: Collection[str] = (),
    last: Collection[str] = (),
    size: Size | None = None,
) -> nn.Module:
    """The module itself, its linear layers of these names replaced by `LoraLinear`, all else frozen.

    Args:
        rank: r, 1 or more. alpha: positive; the scale s is alpha / r, or with `rslora` alpha / sqrt(r).
        targets: last parts of names, such as q_proj; or "all-linear": every linear layer but the head.
        dropout: probability that an input of A is 0 in training.
        trains: "both": A and B; "b": B alone, A is frozen at its first value.
        a_init: first values of A, "uniform" or "orthonormal".
        head: names of parts that are trained as they are, and get no adapter.
        last: names of parts that "all-linear" leaves out, such as the last layer.
        size: what a linear layer is; None: `nn.Linear` alone.
    Raises:
        ValueError: an option out of range, or a target that names no linear layer.
    """
    sizes = {name: found for name, part in module.named_modules() if (found := (size or linear_size)(part)) is not None}
    names = adapted(sizes, targets, head, last)
    module.requires_grad_(False)
    for name in head:
        module.get_submodule(name).requires_grad_(True)
    scale = alpha / (math.sqrt(rank) if rslora else rank)
    for name in names:
        inputs, outputs = sizes[name]
        layer = LoraLinear(module.get_submodule(name), inputs, outputs, rank, scale, dropout, trains, a_init)
        module.set_submodule(name, layer)
    smallest = min(min(sizes[name]) for name in names)
    if rank > smallest and not layer.lora_A.is_meta:  # which a trial of the size makes
        log.warning(
            "model.rank=%d is more than the %d inputs or outputs of an adapted layer: a lower rank says as much",
            rank,
            smallest,
            extra={"note": True},
        )
    return module


def linear_size(part: nn.Module) -> tuple[int, int] | None:
    """(i, o) of a plain linear layer.

    Not of torch's subclasses, such as the last layer of its attention, whose weights are read by others.
    """
    return (part.in_features, part.out_features) if type(part) is nn.Linear else None


def adapted(
    names: Collection[str], targets: str | Sequence[str], head: Collection[str], last: Collection[str]
) -> list[str]:
    """Those of the linear layers' names that `targets` selects, in the model's order; ValueError if one has none."""
    free = [name for name in names if not within(name, head)]
    if isinstance(targets, str):
        if targets != ALL_LINEAR:
            raise ValueError(
                f"model.targets={targets} must be {ALL_LINEAR}, or a list of layers' names: {_last_parts(free)}"
            )
        if found := [name for name in free if not within(name, last)]:
            return found
        raise ValueError("model.targets=all-linear: the model has no linear layer for an adapter")
    if not targets:
        raise ValueError(f"model.targets is empty: name layers for the adapters ({_last_parts(free)}), or all-linear")
    chosen: set[str] = set()
    for target in targets:
        own = {name for name in free if name == target or name.endswith(f".{target}")}
        if not own:
            raise ValueError(f"model.targets: no linear layer is called {target}; there are {_last_parts(free)}")
        chosen |= own
    return [name for name in free if name in chosen]


def within(name: str, parts: Collection[str]) -> bool:
    """Whether the name is of one of these parts, or of something in it."""
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def _last_parts(names: Collection[str]) -> str:
    return ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in names)) or "none"
