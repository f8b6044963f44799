"""FedAdam: Adam on the server with the clients' mean update as gradient.

S. Reddi et al., "Adaptive federated optimization", ICLR 2021, algorithm 2 (no bias correction; tau is `eps`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcomp.core.validate import check_interval
from fedcomp.server.contract import Slots


@dataclass(frozen=True)
class Adam:
    """m <- b1 m + (1 - b1) u; v <- b2 v + (1 - b2) u^2; theta <- theta + lr * m / (sqrt(v) + eps).

    Attributes:
        lr: server learning rate. beta1, beta2: in [0, 1). eps: degree of adaptivity (the paper's tau).
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-3

    def __post_init__(self) -> None:
        for name, value in (("lr", self.lr), ("eps", self.eps)):
            check_interval(f"server.{name}", value, "(0, inf)")
        for name, value in (("beta1", self.beta1), ("beta2", self.beta2)):
            check_interval(f"server.{name}", value, "[0, 1)")

    def init(self, theta: Tensor) -> Slots:
        return theta.new_zeros(theta.shape), theta.new_zeros(theta.shape)

    def step(self, update: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        first, second = slots
        first = first.lerp(update, 1 - self.beta1)
        second = (second * self.beta2).addcmul(update, update, value=1 - self.beta2)
        return self.lr * first / (second.sqrt() + self.eps), (first, second)
