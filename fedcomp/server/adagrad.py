"""FedAdagrad: FedAdam whose second moment is the sum of all squared updates.

S. Reddi et al., "Adaptive federated optimization", ICLR 2021, algorithm 2 (tau is `eps`). Their experiments have
beta1 = 0 with it.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcomp.core.ranges import Within
from fedcomp.server.contract import ServerOptimizer, Slots


@dataclass(frozen=True)
class Adagrad(ServerOptimizer):
    """m <- b1 m + (1 - b1) u; v <- v + u^2; theta <- theta + lr * m / (sqrt(v) + eps)."""

    lr: Annotated[float, Within("(0, inf)")] = 0.1
    beta1: Annotated[float, Within("[0, 1)")] = 0.0
    eps: Annotated[float, Within("(0, inf)")] = 1e-3

    def init(self, theta: Tensor) -> Slots:
        return theta.new_zeros(theta.shape), theta.new_zeros(theta.shape)

    def step(self, update: Tensor, slots: Slots, theta: Tensor) -> tuple[Tensor, Slots]:
        first, second = slots
        first, second = first.lerp(update, 1 - self.beta1), second.addcmul(update, update)
        return self.lr * first / (second.sqrt() + self.eps), (first, second)
