"""Layers that keep their inputs alone, and compute the rest again for the backward pass (activation checkpointing).

T. Chen et al., "Training deep nets with sublinear memory cost", 2016. torch's `checkpoint` computes a layer again with
the parameters that it has then; here these are the ones of its forward pass, which a functional call has put in. What
the layer draws, such as the masks of dropout, is drawn again from the same keys.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from fedcomp.model.batched.dropout import Drawing


class Switch:
    """Whether layers are checkpointed now: under the transforms of `torch.func` they cannot be.

    Attributes:
        on: whether they are. drawing: what they draw from. layers: those that it switches.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self.on, self.drawing, self.layers = False, Drawing(), tuple(layers)


@runtime_checkable
class Checkpoints(Protocol):
    """A network with layers that can be checkpointed. `checkpoints`: turns it on and off; None: they cannot."""

    checkpoints: Switch | None


def switch_of(module: nn.Module) -> Switch | None:
    """What turns the module's checkpointing on; None: it has none."""
    return module.checkpoints if isinstance(module, Checkpoints) else None


@contextlib.contextmanager
def turned_on(switch: Switch | None) -> Iterator[None]:
    """Inside, it is on."""
    if switch is None:
        yield
        return
    switch.on = True
    try:
        yield
    finally:
        switch.on = False


class Checkpointed:
    """The forward pass of one layer, in place of its class's."""

    def __init__(self, layer: nn.Module, switch: Switch) -> None:
        self.layer, self.switch = _Plain(layer), switch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the layer's own."""
        if not (self.switch.on and torch.is_grad_enabled()):
            return self.layer(*args, **kwargs)
        tensors: dict[str, Tensor] = {**dict(self.layer.named_parameters()), **dict(self.layer.named_buffers())}
        draws = self.switch.drawing.mode
        drawn = 0 if draws is None else draws.calls

        def compute(*inputs: Any) -> Any:
            with contextlib.nullcontext() if draws is None else draws.again_from(drawn):
                return functional_call(self.layer, tensors, inputs, kwargs)

        return checkpoint(compute, *args, use_reentrant=False, preserve_rng_state=False)


class _Plain(nn.Module):
    """Calls a layer by its class's forward pass."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.layer).forward(self.layer, *args, **kwargs)


def checkpoint_layers(network: nn.Module) -> Switch:
    """Makes the layers of the network's first list of them `Checkpointed`, while the switch is on."""
    layers = next(part for part in network.modules() if isinstance(part, nn.ModuleList))
    switch = Switch(list(layers))
    for layer in layers:
        layer.forward = Checkpointed(layer, switch)  # found before the class's own, and copied with the layer
    return switch
