"""What sender and receiver both know before a message is sent. Shape legend: M senders, D entries."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcomp.random.keys import Key


@dataclass(frozen=True)
class SharedKnowledge:
    """Knowledge shared by both ends of a link.

    Attributes:
        key: names the shared randomness of this message; fold client numbers in through `key.bits(ids, n)`.
        ids: [M] int64 client numbers of the senders, one a row.
        layers: sizes of the parameter tensors that the vector is made of, in order; they sum to D.
        side_information: [M, D] side information, such as a prior; None where there is none.
        senders: [n] int64 all clients that send this message in this round, ascending, for codecs in which a sender's
            part depends on the others; None: they are `ids`.
        seed: [M] or [1] int64, a seed a row or one for all that both ends hold from an earlier message, to draw from
            instead of `key`; None where there is none.
    """

    key: Key
    ids: Tensor
    layers: tuple[int, ...]
    side_information: Tensor | None = None
    senders: Tensor | None = None
    seed: Tensor | None = None

    @property
    def dim(self) -> int:
        """D."""
        return sum(self.layers)

    @property
    def everybody(self) -> Tensor:
        """[n] int64 all senders of this message."""
        return self.ids if self.senders is None else self.senders
