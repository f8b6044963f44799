"""Local Adam, fresh moments every round unless it is given those of earlier ones.

D. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.core.validate import at_least_zero, positive, unit_interval


@dataclass(frozen=True, kw_only=True)
class Adam(MinibatchSolver):
    """Adam as torch.optim.Adam computes it.

    Attributes:
        beta1, beta2: decay of the first and second moment, in [0, 1). eps: added to the root of the second moment.
        weight_decay: L2 penalty's factor, added to the gradient; at least 0.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            unit_interval(f"client.{name}", beta)
        positive("client.eps", self.eps)
        at_least_zero("client.weight_decay", self.weight_decay)

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        return theta.new_zeros(theta.shape), theta.new_zeros(theta.shape)

    def update(self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...], step: int, lr: float) -> None:
        first, second = self._moments(theta, grad, slots)
        scale1, scale2 = 1 - self.beta1 ** (step + 1), 1 - self.beta2 ** (step + 1)
        theta.addcdiv_(first, (second / scale2).sqrt_().add_(self.eps), value=-lr / scale1)

    def step_coefficients(self, steps: Tensor, lr: float) -> Tensor:
        made = (steps + 1).to(torch.float64)
        scale1, scale2 = 1 - self.beta1**made, 1 - self.beta2**made
        return torch.stack((-lr / scale1, scale2))

    def apply(self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...], step_coefficients: Tensor) -> None:
        first, second = self._moments(theta, grad, slots)
        theta.addcdiv_(first * step_coefficients[0], (second / step_coefficients[1]).sqrt_().add_(self.eps))

    def _moments(self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        first, second = slots
        if self.weight_decay:
            grad = grad.add(theta, alpha=self.weight_decay)
        first.lerp_(grad, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        return first, second
