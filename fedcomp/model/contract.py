"""What a model is to the engine: flat rows of parameters in, losses and gradients out, for many clients at once.

Shape legend: M clients (rows), D parameters, C running statistics (BatchNorm), B batch, O outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from fedcomp.keys import Key


@dataclass(frozen=True)
class Gradient:
    """One gradient step's view of the loss.

    Attributes:
        grad: [M, D] gradient of each row's mean batch loss.
        loss: [M] that loss.
        stats: [M, C] running statistics after the forward pass.
    """

    grad: Tensor
    loss: Tensor
    stats: Tensor


class Model(Protocol):
    """A network whose parameters are rows.

    Attributes:
        dim: D, parameters, laid out in the order of `module.parameters()`.
        num_stats: C, float buffers (BatchNorm running means and variances), in the order of `module.buffers()`.
        layers: size of each parameter tensor in that order; sums to D.
        module: the plain single-client twin that tests hold the rows against.
    """

    dim: int
    num_stats: int
    layers: tuple[int, ...]
    module: nn.Module

    def init(self, key: Key) -> tuple[Tensor, Tensor]:
        """First parameters [D] and statistics [C], drawn from `key`."""
        ...

    def gradient(self, theta: Tensor, stats: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Gradient:
        """Gradient of each client's mean loss over its own batch, in training mode.

        Args:
            theta: [M, D]; stats: [M, C]; x: [M, B, ...]; y: [M, B] classes or [M, B, O] targets.
            weight: [M, B] of 0 and 1, where 0 marks places of the batch that hold no sample (they change
                neither loss, gradient nor BatchNorm statistics); None: every place holds one.
        """
        ...

    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        """[B, O] outputs of one model (theta [D], stats [C]) on x [B, ...], in evaluation mode."""
        ...
