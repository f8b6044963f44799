"""The plain server step, with momentum as an option (FedAvgM of T.-M. H. Hsu, H. Qi, M. Brown, 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcomp.core.validate import positive, unit_interval
from fedcomp.server.contract import Slots


@dataclass(frozen=True)
class Sgd:
    """v <- momentum * v + update; theta <- theta + lr * v. lr = 1 without momentum is FedAvg.

    Attributes:
        lr: server learning rate. momentum: in [0, 1).
    """

    lr: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        positive("server.lr", self.lr)
        unit_interval("server.momentum", self.momentum)

    def init(self, theta: Tensor) -> Slots:
        return (theta.new_zeros(theta.shape),) if self.momentum else ()

    def step(self, update: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        if not self.momentum:
            return update * self.lr, slots
        velocity = slots[0] * self.momentum + update
        return velocity * self.lr, (velocity,)
