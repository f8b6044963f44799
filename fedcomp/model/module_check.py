"""What torch accepts in a module and a run cannot train: parts that are not registered, parameters without a gradient.

Shape legend: B batch, K classes.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fedcomp.core.first_line import first_line
from fedcomp.model.batched.dropout import trial_draws
from fedcomp.model.flat import copy_sharing_frozen, statistics_of, trained_parameters

log = logging.getLogger("fedcomp")


def check_module(module: nn.Module, name: str) -> None:
    """Raise ValueError, which begins with the model's name, unless a run can train and send what the module holds.

    That is: every part and every trained tensor is registered, has its size and float32, and is one parameter.
    """
    for where, held in _unregistered(module):
        remedy = "nn.ModuleList, nn.ModuleDict or an attribute of its own" if isinstance(held, nn.Module) else ""
        what = f"{type(held).__name__}" if remedy else "tensor that requires a gradient"
        raise ValueError(
            f"model {name} keeps a {what} in {where}, where torch finds no parameters: it would be neither trained, "
            f"nor sent, nor saved; take {remedy or 'nn.Parameter, nn.ParameterList or nn.ParameterDict'}, or freeze it "
            "by requires_grad_(False)"
        )
    for path, tensor in module.named_parameters():
        if nn.parameter.is_lazy(tensor):
            raise ValueError(
                f"model {name} has a lazy layer: the size of {path} is not known before its first call; take a layer "
                "that is made with its size, which follows from input_shape"
            )
        if tensor.requires_grad and tensor.dtype is not torch.float32:
            raise ValueError(
                f"model {name} has {path} in {tensor.dtype}, but trained parameters are torch.float32; clients compute "
                "in another type by dtype=float64 or precision=bf16"
            )
    for (storage, _, end, one), (next_storage, start, _, other) in pairwise(sorted(_places(module))):
        if storage == next_storage and start < end:
            both = " and ".join(sorted((one, other)))
            raise ValueError(
                f"model {name} has two parameters in the same memory, {both}, which would be trained apart: "
                "tie weights by one parameter (self.b.weight = self.a.weight), or use it twice in forward"
            )


def note_trial(module: nn.Module, name: str, x: Tensor, num_classes: int) -> None:
    """Say what is odd in the outputs of random inputs x [B, ...], which a copy of the module gives.

    Args:
        num_classes: K; 0 for regression.
    Raises:
        ValueError: no parameter has a gradient, or outputs are not finite.
    """
    tried = copy_sharing_frozen(module).train()
    before = {path: buffer.clone() for path, buffer in statistics_of(tried).items()}
    with torch.random.fork_rng(devices=[]), trial_draws():
        with torch.enable_grad():
            outputs = tried(x)
        constant = [path for path, buffer in statistics_of(tried).items() if torch.equal(buffer, before[path])]
        tried.eval()
        with torch.no_grad():
            whole, part = tried(x), tried(x[:2])
            alone, trouble = _alone(tried, x[:2], part.shape[1:])
    _note_unreached(tried, name, outputs)
    if bool((whole.isnan() | (whole == math.inf)).any()):
        unfilled = [path for path, one in tried.named_parameters() if not bool(one.isfinite().all())]
        why = (
            f"fill {_first(unfilled)} (nn.init), which torch.empty does not" if unfilled else "look for a division by 0"
        )
        raise ValueError(
            f"model {name} gives outputs that are not finite, of random inputs and first parameters: {why}"
        )
    if constant:
        _say(
            f"model {name} keeps {_first(constant)} as it is in training, which is sent with the statistics all the "
            "same: make a constant a buffer with persistent=False, or a parameter with requires_grad=False"
        )
    if num_classes > 1 and _are_probabilities(outputs.detach()) and _is_bounded(tried, x):
        _say(
            f"model {name} gives probabilities, as by softmax or sigmoid, and the loss takes a softmax of its outputs: "
            "leave the model's own out, or it hardly learns"
        )
    if trouble is not None:
        _say(f"model {name} takes no batch of one sample, which a client's last batch can be: {trouble}")
    whole, atol = whole[:2], 1e-3 * float(part.abs().max())
    others = (part,) if alone is None else (part, alone)
    if not all(torch.allclose(whole, one, rtol=0, atol=atol, equal_nan=True) for one in others):
        _say(
            f"model {name} in evaluation: a sample's outputs depend on the other samples of its batch, as by BatchNorm "
            "with track_running_stats=False, so that test metrics depend on how many are evaluated at once"
        )


def _alone(module: nn.Module, x: Tensor, shape: torch.Size) -> tuple[Tensor | None, str | None]:
    """(outputs [B, *shape] of x [B, ...], each sample in a batch of its own; None) or (None, why there are none)."""
    try:
        outputs = [module(one) for one in x.split(1)]
    except (RuntimeError, ValueError, IndexError) as error:
        return None, first_line(error)
    given = tuple(outputs[0].shape)
    if given != (1, *shape):
        return None, f"its outputs are {given} instead of {(1, *shape)}, as by squeeze() in forward"
    return torch.cat(outputs), None


def _note_unreached(module: nn.Module, name: str, outputs: Tensor) -> None:
    """Say which trained parameters the outputs have no gradient of. Raises ValueError: it is all of them."""
    reached = _reached(outputs)
    trained = {path: id(one) for path, one in module.named_parameters() if one.requires_grad}
    missed = [path for path, one in trained.items() if one not in reached]
    if len(missed) == len(trained):
        raise ValueError(
            f"model {name} gives outputs without a gradient: they must follow from its parameters by torch's "
            "operations, without detach(), .data, .item(), NumPy or torch.no_grad()"
        )
    if missed:
        _say(
            f"model {name} has no gradient of {_first(missed)}, on random inputs: what is never trained is sent all "
            "the same; freeze it (requires_grad=False), leave it out, or look for detach(), .data and torch.no_grad() "
            "in forward"
        )


def _are_probabilities(outputs: Tensor) -> bool:
    """Whether outputs [B, K, ...] sum to 1 over the classes, or are all between 0 and 1."""
    between = bool(((outputs > 0) & (outputs < 1)).all())
    return between or (bool((outputs >= 0).all()) and bool(((outputs.sum(1) - 1).abs() < 1e-4).all()))


@torch.no_grad()
def _is_bounded(module: nn.Module, x: Tensor) -> bool:
    """Whether outputs stay in [0, 1], as those of sigmoid, where trained parameters are a thousand times as large."""
    for parameter in trained_parameters(module):
        parameter.mul_(1000)
    outputs = module(x)
    return bool(((outputs >= 0) & (outputs <= 1)).all())


def _first(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _say(text: str) -> None:
    log.warning("warning: %s", text, extra={"note": True})


def _unregistered(module: nn.Module) -> Iterator[tuple[str, nn.Module | Tensor]]:
    """(where, what) of parts with trained parameters, and of leaf tensors that require a gradient, in attributes."""
    registered = {id(one) for one in module.parameters()}
    own = vars(nn.Module()).keys()
    for path, part in module.named_modules():
        for key, value in vars(part).items():
            for held in () if key in own else _held(value):
                if any(id(one) not in registered for one in _trained(held)):
                    yield f"{path}.{key}" if path else key, held


def _held(value: Any) -> Iterator[nn.Module | Tensor]:
    """The modules and tensors in an attribute, also of lists and mappings."""
    if isinstance(value, (nn.Module, Tensor)):
        yield value
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            yield from _held(one)
    elif isinstance(value, Mapping):
        yield from _held(list(value.values()))


def _trained(held: nn.Module | Tensor) -> list[Tensor]:
    if isinstance(held, nn.Module):
        return list(trained_parameters(held))
    return [held] if held.requires_grad and held.is_leaf else []


def _places(module: nn.Module) -> Iterator[tuple[int, int, int, str]]:
    """(storage, its first entry, its end, name) of each trained parameter; of one with gaps, the first entry alone."""
    for path, tensor in module.named_parameters():
        if tensor.requires_grad and tensor.numel():
            first = int(tensor.storage_offset())
            length = tensor.numel() if tensor.is_contiguous() else 1
            yield tensor.untyped_storage()._cdata, first, first + length, path


def _reached(outputs: Tensor) -> set[int]:
    """The ids of the leaves that autograd knows the outputs' gradient of."""
    found: set[int] = set()
    seen: set[Any] = {None}
    left: list[Any] = [outputs.grad_fn]
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            found.add(id(node.variable))
        left += [after for after, _ in node.next_functions]
    return found
