"""Local Adam, fresh moments every round unless it is given those of earlier ones.

D. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1; with `decoupled` AdamW of
I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019, algorithm 2.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.core.ranges import Within


@dataclass(frozen=True, kw_only=True)
class Adam(MinibatchSolver):
    """Adam as torch.optim.Adam computes it, or torch.optim.AdamW, whose decay is `decoupled`."""

    beta1: Annotated[float, Within("[0, 1)")] = 0.9
    beta2: Annotated[float, Within("[0, 1)")] = 0.999
    eps: Annotated[float, Within("(0, inf)")] = 1e-8
    weight_decay: Annotated[float, Within("[0, inf)")] = 0.0
    decoupled: bool = False

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        return theta.new_zeros(theta.shape), theta.new_zeros(theta.shape)

    def step_coefficients(self, steps: float | Tensor, lr: float) -> tuple[float | Tensor, ...]:
        """-lr / (1 - beta1^t) and 1 - beta2^t, t = steps + 1; AdamW's 1 - lr weight_decay."""
        scale1, scale2 = 1 - self.beta1 ** (steps + 1), 1 - self.beta2 ** (steps + 1)
        shrink = (1 - lr * self.weight_decay,) if self.decoupled else ()
        return -lr / scale1, scale2, *shrink

    def update(
        self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...], coefficients: tuple[float | Tensor, ...]
    ) -> None:
        (first, second), (rate, scale2, *shrink) = slots, coefficients
        if self.decoupled:
            theta.mul_(shrink[0])
        elif self.weight_decay:
            grad = grad.add(theta, alpha=self.weight_decay)
        first.lerp_(grad, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        root = (second / scale2).sqrt_().add_(self.eps)
        if isinstance(rate, Tensor):
            theta.addcdiv_(first * rate, root)
        else:
            theta.addcdiv_(first, root, value=rate)
