"""FedAdam: Adam on the server with the clients' mean update as gradient.

S. Reddi et al., "Adaptive federated optimization", ICLR 2021, algorithm 2 (no bias correction; tau is `eps`).
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcomp.core.ranges import Within
from fedcomp.server.contract import ServerOptimizer, Slots


@dataclass(frozen=True)
class Adam(ServerOptimizer):
    """m <- b1 m + (1 - b1) u; v <- b2 v + (1 - b2) u^2; theta <- theta + lr * m / (sqrt(v) + eps)."""

    lr: Annotated[float, Within("(0, inf)")] = 0.01
    beta1: Annotated[float, Within("[0, 1)")] = 0.9
    beta2: Annotated[float, Within("[0, 1)")] = 0.99
    eps: Annotated[float, Within("(0, inf)")] = 1e-3

    def init(self, theta: Tensor) -> Slots:
        return theta.new_zeros(theta.shape), theta.new_zeros(theta.shape)

    def step(self, update: Tensor, slots: Slots, theta: Tensor) -> tuple[Tensor, Slots]:
        first, second = slots
        first = first.lerp(update, 1 - self.beta1)
        second = self.second_moment(second, update)
        return self.lr * first / (second.sqrt() + self.eps), (first, second)

    def second_moment(self, second: Tensor, update: Tensor) -> Tensor:
        """The next v [D]."""
        return (second * self.beta2).addcmul(update, update, value=1 - self.beta2)
