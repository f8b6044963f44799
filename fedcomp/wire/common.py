"""What sender and receiver both know without sending a bit. Shape legend: M senders, D entries."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcomp.keys import Key


@dataclass(frozen=True)
class Common:
    """Knowledge shared by both ends of a link.

    Attributes:
        key: names the shared randomness of this message; fold client numbers in through `key.words(ids, n)`.
        ids: [M] int64 senders.
        layers: sizes of the parameter tensors that the vector is made of, in order; they sum to D.
        side: [M, D] side information, such as a prior; None where there is none.
    """

    key: Key
    ids: Tensor
    layers: tuple[int, ...]
    side: Tensor | None = None

    @property
    def dim(self) -> int:
        """D."""
        return sum(self.layers)
