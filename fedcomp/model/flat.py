"""A module's parameters and running statistics as flat vectors, and its first weights from a key.

Shape legend: M clients, D parameters, C running statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Tensor, nn

from fedcomp.core.parameter_layout import BIAS, EMBEDDING, NORMALISATION, WEIGHT, ParameterTensor
from fedcomp.random.keys import Key

_NORMALISATIONS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
)

Make = Callable[[], nn.Module]


class Flat:
    """The layout of one module in a row: parameters in the order of `parameters()`, float buffers of `buffers()`.

    Attributes:
        module: the ordinary torch module of one client, on the CPU.
        dim: D. num_stats: C.
        layers: size of each parameter tensor. starts: where each begins in the row. tensors: what each of them is.
        draws_in_training: whether gradients need `draws`.
        shapes, stat_shapes: shape of each parameter tensor and of each float buffer.
    """

    draws_in_training = False

    def __init__(self, module: nn.Module, make: Make | None = None) -> None:
        """`make` returns a freshly initialised module of the same shapes; None: `module` is reset in place."""
        frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
        if frozen:
            raise ValueError(
                f"parameter {frozen[0]!r} has requires_grad=False; every parameter of a client's model is trained: "
                f"register it as a buffer instead"
            )
        self.module = module
        self.make: Make = make if make is not None else lambda: reset(module)
        self.shapes = tuple(parameter.shape for parameter in module.parameters())
        self.layers = tuple(shape.numel() for shape in self.shapes)
        *self.starts, self.dim = accumulate(self.layers, initial=0)
        self.tensors = _tensors(module)
        self.stat_shapes = tuple(buffer.shape for buffer in _float_buffers(module).values())
        self.stat_sizes = tuple(shape.numel() for shape in self.stat_shapes)
        self.num_stats = sum(self.stat_sizes)

    def init(self, key: Key) -> tuple[Tensor, Tensor]:
        """First parameters [D] and statistics [C], float32, by the module's own initialisation drawn from `key`."""
        return flatten(draw(self.make, key))

    def parameters(self, theta: Tensor) -> list[Tensor]:
        """Views [M, *shape] of the rows [M, D], one a parameter tensor."""
        return [part.unflatten(1, shape) for part, shape in zip(theta.split(self.layers, 1), self.shapes)]

    def statistics(self, stats: Tensor) -> list[Tensor]:
        """Views [M, *shape] of the rows [M, C], one a float buffer."""
        return [
            part.unflatten(1, shape) if shape else part[:, 0]
            for part, shape in zip(stats.split(self.stat_sizes, 1), self.stat_shapes)
        ]


def flatten(module: nn.Module) -> tuple[Tensor, Tensor]:
    """A module's parameters [D] and float buffers [C] as new float32 vectors."""
    parameters = [parameter.detach().flatten().float() for parameter in module.parameters()]
    buffers = [buffer.detach().flatten().float() for buffer in _float_buffers(module).values()]
    return torch.cat([torch.empty(0), *parameters]), torch.cat([torch.empty(0), *buffers])


def draw(make: Make, key: Key) -> nn.Module:
    """`make()` with every random draw taken from `key`; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(key.generator().get_state())
        return make()


def reset(module: nn.Module) -> nn.Module:
    """Draw a ready module's weights anew by each part's own `reset_parameters()`; ValueError where a part has none."""
    for name, part in module.named_modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
        elif next(part.parameters(recurse=False), None) is not None:
            raise ValueError(
                f"part {name or 'top'!r} ({type(part).__name__}) has parameters but no reset_parameters(), so its "
                f"first weights cannot be drawn from the run's key: give the class, not an instance (`_partial_: true`)"
            )
    return module


def _tensors(module: nn.Module) -> tuple[ParameterTensor, ...]:
    """What each parameter tensor is, in the order of `parameters()`; a bias has the fan-in of its part's weight."""
    found: dict[int, ParameterTensor] = {}
    for part in module.modules():
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
    return tuple(found[id(tensor)] for tensor in module.parameters())


def _float_buffers(module: nn.Module) -> dict[str, Tensor]:
    return {name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()}
