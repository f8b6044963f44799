"""Layers of M clients at once.

Images travel as (B, M*C, H, W), channels last in memory, one block of C channels a client; features as (M, B, F).

Shape legend: M clients, B batch, C channels, H height, W width, F features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcomp.model.contract import StepDraws


@dataclass
class Pass:
    """What a forward pass carries besides the activations.

    Attributes:
        parameters: [M, *shape] views, one a trained tensor, then one a frozen tensor, of stride 0 over the clients.
        statistics: [M, C] running statistics, one a buffer; layers replace their entries while training.
        weight: [M, B] of 0 and 1 marking real samples; None: all are.
        training: batch statistics (True) or running ones (False).
        products: what factors of convolutions and matrix products are cast to; None: they stay what they are.
        draws: what dropout draws from in training. calls: draws so far.
    """

    parameters: list[Tensor]
    statistics: list[Tensor]
    weight: Tensor | None
    training: bool
    products: torch.dtype | None = None
    draws: StepDraws | None = None
    calls: int = 0

    def factor(self, x: Tensor) -> Tensor:
        """x as convolutions and matrix products take it; a frozen tensor stays one for all clients."""
        if self.products is None:
            return x
        return x.to(self.products) if x.stride(0) else x[:1].to(self.products).expand_as(x)

    @property
    def num_clients(self) -> int:
        """M."""
        return self.parameters[0].shape[0]


Layer = Callable[[Tensor, Pass], Tensor]
"""One step of the chain: outputs from inputs, images or features as the module docstring says."""


@dataclass(frozen=True)
class Linear:
    """x W^T + b of each client, features to features. `weight`, `bias`: places in `Pass.parameters`."""

    weight: int
    bias: int | None

    def __call__(self, x: Tensor, state: Pass) -> Tensor:
        x, transposed = state.factor(x), state.factor(state.parameters[self.weight]).mT
        if self.bias is None:
            return torch.bmm(x, transposed)
        return torch.baddbmm(state.factor(state.parameters[self.bias]).unsqueeze(1), x, transposed)


@dataclass(frozen=True)
class Pooling:
    """A pooling of images that treats channels alike, so clients too: `function(x, **options)`."""

    function: Callable[..., Tensor]
    options: dict[str, Any]

    def __call__(self, x: Tensor, state: Pass) -> Tensor:
        return self.function(x, **self.options)


@dataclass(frozen=True)
class Activation:
    """An elementwise function."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor, state: Pass) -> Tensor:
        return self.function(x)


RELU = (torch.relu, torch.relu_)
"""The functions of an `Activation` that is a ReLU."""


@dataclass(frozen=True)
class Flatten:
    """Images (B, M*C, H, W) to features (M, B, C*H*W), in the order of a plain `nn.Flatten`."""

    def __call__(self, x: Tensor, state: Pass) -> Tensor:
        if x.dim() == 3:
            return x
        return x.unflatten(1, (state.num_clients, -1)).transpose(0, 1).flatten(2)


def stack_images(x: Tensor) -> Tensor:
    """[M, B, C, H, W] to (B, M*C, H, W), channels last in memory; free for one client whose images already are."""
    num_clients, batch, channels, height, width = x.shape
    stacked = x.permute(1, 3, 4, 0, 2).reshape(batch, height, width, num_clients * channels)
    stacked = stacked.permute(0, 3, 1, 2)
    if stacked.shape[1] > 1:
        return stacked
    # With one channel both layouts hold the same numbers in the same places; strides tell convolutions which is meant.
    return stacked.as_strided(stacked.shape, (height * width, 1, width, 1), stacked.storage_offset())
