"""FedYogi: FedAdam whose second moment moves towards u^2 by a step that does not grow with their distance.

S. Reddi et al., "Adaptive federated optimization", ICLR 2021, algorithm 2 (no bias correction; tau is `eps`).
"""

from dataclasses import dataclass

from torch import Tensor

from fedcomp.server.adam import Adam


@dataclass(frozen=True)
class Yogi(Adam):
    """As `Adam`, with v <- v - (1 - b2) u^2 sign(v - u^2)."""

    def second_moment(self, second: Tensor, update: Tensor) -> Tensor:
        square = update.square()
        return second - (1 - self.beta2) * square * (second - square).sign()
