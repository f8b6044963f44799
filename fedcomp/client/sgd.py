"""Local SGD with momentum and weight decay, as torch.optim.SGD computes it."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.core.ranges import Within


@dataclass(frozen=True, kw_only=True)
class Sgd(MinibatchSolver):
    """g <- grad + weight_decay * theta; v <- momentum * v + g; theta <- theta - lr * v. Fresh v every round."""

    momentum: Annotated[float, Within("[0, 1)")] = 0.0
    weight_decay: Annotated[float, Within("[0, inf)")] = 0.0

    @property
    def plain_sgd_decay(self) -> float | None:
        inherits = all(getattr(type(self), name) is getattr(Sgd, name) for name in ("update", "step_coefficients"))
        return self.weight_decay if inherits and not self.momentum and self.clip_norm is None else None

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        return (theta.new_zeros(theta.shape),) if self.momentum else ()

    def update(
        self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...], coefficients: tuple[float | Tensor, ...]
    ) -> None:
        if self.weight_decay:
            grad = grad.add(theta, alpha=self.weight_decay)
        if self.momentum:
            (velocity,) = slots
            grad = velocity.mul_(self.momentum).add_(grad)
        super().update(theta, grad, slots, coefficients)
