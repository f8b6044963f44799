"""AdamW on the server, with the clients' mean update as the negative gradient.

I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019, as torch.optim.AdamW has it, with its
defaults: unlike FedAdam (`server=adam`) with bias correction and hardly any `eps`.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.core.ranges import Within
from fedcomp.server.contract import ServerOptimizer, Slots


@dataclass(frozen=True)
class AdamW(ServerOptimizer):
    """m <- b1 m + (1 - b1) u; v <- b2 v + (1 - b2) u^2; theta <- theta - lr w theta + lr m^ / (sqrt(v^) + eps).

    m^ = m / (1 - b1^t) and v^ = v / (1 - b2^t) at step t = 1, 2, ...; w is `weight_decay`.
    """

    lr: Annotated[float, Within("(0, inf)")] = 1e-3
    beta1: Annotated[float, Within("[0, 1)")] = 0.9
    beta2: Annotated[float, Within("[0, 1)")] = 0.999
    eps: Annotated[float, Within("(0, inf)")] = 1e-8
    weight_decay: Annotated[float, Within("[0, inf)")] = 0.01

    def init(self, theta: Tensor) -> Slots:
        """m, v [D] and t [1]."""
        steps = theta.new_zeros(1, dtype=torch.float64)
        return theta.new_zeros(theta.shape), theta.new_zeros(theta.shape), steps

    def step(self, update: Tensor, slots: Slots, theta: Tensor) -> tuple[Tensor, Slots]:
        first, second, steps = slots
        first = first.lerp(update, 1 - self.beta1)
        second = (second * self.beta2).addcmul(update, update, value=1 - self.beta2)
        steps = steps + 1
        left = [(1 - beta**steps).to(update.dtype) for beta in (self.beta1, self.beta2)]
        step = self.lr * (first / left[0]) / ((second / left[1]).sqrt() + self.eps)
        step = step - self.lr * self.weight_decay * theta
        return step, (first, second, steps)
