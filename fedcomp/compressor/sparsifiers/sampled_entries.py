"""What Rand-k and random masking share: entries sent with one probability p, whatever they are.

Shape legend: M senders, D entries.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from fedcomp.compressor.seed import SEEDS
from fedcomp.core.validate import check_choice

SCALES = ("unbiased", "none")


class SampledEntries(Protocol):
    """Options of a codec that sends a random part of the entries, and the error that it makes.

    Attributes:
        scale: unbiased, decoded times 1 / p; none: as sent, for error feedback, which needs a codec that only shrinks.
        seed_cost: sent (64 bits a message) or derived (from round and sender's number, for nothing).
    """

    @property
    def scale(self) -> str: ...
    @property
    def seed_cost(self) -> str: ...

    def probability(self, dim: int) -> float:
        """p for a vector of `dim` entries."""
        ...

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        check_choice("seed_cost", self.seed_cost, SEEDS)

    @property
    def unbiased(self) -> bool:
        """Whether it is scaled up."""
        return self.scale == "unbiased"

    @property
    def contractive(self) -> bool:
        """Whether it is not scaled up."""
        return self.scale == "none"

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float:
        """1 / p - 1, with equality for every vector."""
        return 1 / self.probability(sum(layers)) - 1

    def expected_error(self, x: Tensor) -> Tensor:
        """[M] float64 E||C(x) - x||^2 of each row: (1 / p - 1) ||x||^2, or (1 - p) ||x||^2 unscaled."""
        p = self.probability(x.shape[1])
        return x.double().square().sum(1) * (1 / p - 1 if self.scale == "unbiased" else 1 - p)
