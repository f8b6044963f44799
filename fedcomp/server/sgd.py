"""The plain server step, with momentum as an option (FedAvgM of T.-M. H. Hsu, H. Qi, M. Brown, 2019).

With Nesterov's momentum it is the outer optimizer of DiLoCo (A. Douillard et al., "DiLoCo: distributed
low-communication training of language models", arXiv:2311.08105), lr 0.7 and momentum 0.9, as
torch.optim.SGD(nesterov=True) has it: for a constant update the steps grow from lr (1 + momentum) to
lr / (1 - momentum) = 7 times the update.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcomp.core.ranges import Within
from fedcomp.server.contract import ServerOptimizer, Slots


@dataclass(frozen=True)
class Sgd(ServerOptimizer):
    """v <- momentum * v + update; theta <- theta + lr * v. lr = 1 without momentum is FedAvg.

    With `nesterov` theta <- theta + lr * (update + momentum * v) instead.
    """

    lr: Annotated[float, Within("(0, inf)")] = 1.0
    momentum: Annotated[float, Within("[0, 1)")] = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError("server.nesterov=true needs a momentum above 0: give server.momentum, for instance 0.9")

    def init(self, theta: Tensor) -> Slots:
        return (theta.new_zeros(theta.shape),) if self.momentum else ()

    def step(self, update: Tensor, slots: Slots, theta: Tensor) -> tuple[Tensor, Slots]:
        if not self.momentum:
            return update * self.lr, slots
        velocity = slots[0] * self.momentum + update
        step = update + self.momentum * velocity if self.nesterov else velocity
        return step * self.lr, (velocity,)
