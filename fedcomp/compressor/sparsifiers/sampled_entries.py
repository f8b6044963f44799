"""What Rand-k and random masking share: entries sent with one probability p, whatever they are.

Shape legend: M senders, D entries, n sent.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedcomp.compressor.contract import Codec
from fedcomp.compressor.seed import SeedCost
from fedcomp.wire import Payload, SharedKnowledge


@dataclass(frozen=True, kw_only=True)
class SampledEntries(Codec):
    """A codec that sends a random part of the entries as they are, as the joint estimators (`estimators/`) need it.

    Each entry is sent with the same probability p, by every sender independently of the others, and whatever the
    entries are. The error is (1 / p - 1) ||x||^2, or (1 - p) ||x||^2 unscaled, as error feedback needs it.
    """

    scale: Literal["unbiased", "none"] = "unbiased"
    seed_cost: SeedCost = "sent"

    @abstractmethod
    def probability(self, dim: int) -> float:
        """p for a vector of `dim` entries."""

    @abstractmethod
    def sampled(self, payload: Payload, common: SharedKnowledge) -> tuple[Tensor, Tensor]:
        """(values [M, n] float32, unscaled; their indices [M, n] int64, ascending, and D beyond what a row sent)."""

    @property
    def unbiased(self) -> bool:
        return self.scale == "unbiased"

    @property
    def contractive(self) -> bool:
        return self.scale == "none"

    def omega(self, layers: tuple[int, ...], num_senders: int) -> float:
        """1 / p - 1, with equality for every vector."""
        return 1 / self.probability(sum(layers)) - 1

    def expected_error(self, x: Tensor) -> Tensor:
        p = self.probability(x.shape[1])
        return x.double().square().sum(1) * (1 / p - 1 if self.scale == "unbiased" else 1 - p)
