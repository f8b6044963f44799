"""What sender and receiver both know before a message is sent. Shape legend: M rows, n senders, D entries."""

from dataclasses import dataclass

from torch import Tensor

from fedcomp.random.keys import Key


@dataclass(frozen=True)
class SharedKnowledge:
    """What both ends of a link know.

    Attributes:
        key: of the shared randomness of this message; draws are `key.bits(ids, n)` and so on, one row per client.
        ids: [M] int64 client numbers of the senders, one per row.
        layers: sizes of the parameter tensors in the vector, in order; they sum to D.
        side_information: [M, D], or [1, D] for all rows, such as a prior; None if there is none.
        senders: [n] int64 all clients that send this message in this round, ascending, for codecs in which a message
            depends on the other senders; None: they are `ids`.
        seed: [M] or [1] int64, a seed per row or one for all rows, known from an earlier message, to draw from instead
            of `key`; None if there is none.
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
