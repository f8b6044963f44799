"""A module's trained parameters and running statistics as flat vectors, and its first weights from a key.

Parameters with `requires_grad=False` are frozen: a base that all clients share. They are in neither vector, are never
sent, and lie once on a device.

Shape legend: D trained parameters, C running statistics.
"""

import copy
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fedcomp.core.parameter_layout import BIAS, EMBEDDING, NORMALISATION, WEIGHT, ParameterTensor
from fedcomp.model.lora.linear import LoraLinear
from fedcomp.random.keys import Key

_NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)

Make = Callable[[], nn.Module]


def flatten(module: nn.Module) -> tuple[Tensor, Tensor]:
    """A module's trained parameters [D] and float buffers [C] as new float32 vectors."""
    parameters = [parameter.detach().flatten().float() for parameter in trained_parameters(module)]
    buffers = [buffer.detach().flatten().float() for buffer in statistics_of(module).values()]
    return torch.cat([torch.empty(0), *parameters]), torch.cat([torch.empty(0), *buffers])


def trained_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Those with `requires_grad`, in the order of `parameters()`."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def frozen_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The other parameters, without a gradient, by name."""
    return {name: tensor.detach() for name, tensor in module.named_parameters() if not tensor.requires_grad}


def copy_sharing_frozen(module: nn.Module) -> nn.Module:
    """A copy with parameters and buffers of its own, and the frozen parameters of `module` itself."""
    return copy.deepcopy(module, {id(one): one for one in module.parameters() if not one.requires_grad})


def draw(make: Make, key: Key) -> nn.Module:
    """`make()` with every random draw taken from `key`; torch's global generator is left as it was.

    Raises ValueError: it gives torch a seed of its own, so that it would draw the same for every key.
    """
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(key.generator().get_state())
        seed = torch.initial_seed()
        made = make()
        if torch.initial_seed() != seed:
            raise ValueError(
                "the model calls torch.manual_seed, so that all seeds would begin with the same parameters: leave it "
                "out (to begin with the same on purpose, call it within torch.random.fork_rng())"
            )
        return made


@runtime_checkable
class Redrawn(Protocol):
    """A module that draws its trained tensors anew without being made again, as one whose frozen base is read once."""

    def redraw(self) -> nn.Module:
        """The module itself, with first values of trained tensors drawn in place; the frozen ones stay."""


def reset(module: nn.Module) -> nn.Module:
    """Draw a ready module's trained weights anew by its parts' own `reset_parameters()`; ValueError if one has none."""
    frozen = {name: tensor.clone() for name, tensor in frozen_tensors(module).items()}
    for name, part in module.named_modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
        elif any(own.requires_grad for own in part.parameters(recurse=False)):
            raise ValueError(
                f"part {name or 'top'!r} ({type(part).__name__}) has parameters but no reset_parameters(), so its "
                f"first weights cannot be drawn from the run's key: give the class, not an instance (`_partial_: true`)"
            )
    for name, tensor in frozen_tensors(module).items():
        tensor.copy_(frozen[name])
    return module


def tensors_in(module: nn.Module) -> tuple[ParameterTensor, ...]:
    """What each trained tensor is, in the order of `parameters()`; a bias has the fan-in of its part's weight."""
    found: dict[int, ParameterTensor] = {}
    num_adapted = 0
    for part in module.modules():
        if isinstance(part, LoraLinear):
            for tensor, factor in part.factors(num_adapted):
                found[id(tensor)] = ParameterTensor(tensor.numel(), WEIGHT, factor.shape[1], lora=factor)
            num_adapted += 1
            continue
        own = list(part.parameters(recurse=False))
        fan_in = max((tensor[0].numel() for tensor in own if tensor.dim() > 1), default=1)
        for tensor in own:
            kind = WEIGHT if tensor.dim() > 1 else BIAS
            if isinstance(part, _NORMALISATIONS):
                kind = NORMALISATION
            elif isinstance(part, nn.Embedding | nn.EmbeddingBag):
                kind = EMBEDDING
            kernel = tensor.shape[2] if kind == WEIGHT and tensor.dim() > 2 else 1
            found.setdefault(id(tensor), ParameterTensor(tensor.numel(), kind, fan_in, kernel))
    return tuple(found[id(tensor)] for tensor in trained_parameters(module))


def statistics_of(module: nn.Module) -> dict[str, Tensor]:
    """The running statistics by name: float buffers in the order of `buffers()`, but those that are not persistent.

    The latter are constants that the module computes itself, such as a table of angles for its positions.
    """
    constants = {id(part._buffers[name]) for part in module.modules() for name in part._non_persistent_buffers_set}
    buffers = module.named_buffers()
    return {name: buffer for name, buffer in buffers if buffer.is_floating_point() and id(buffer) not in constants}
