"""The three parts of a compressor. Shape legend: M senders (rows), N clients, D entries of a vector."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from fedcomp.cohort import Cohort
from fedcomp.keys import Key
from fedcomp.wire import Common, Payload


class Codec(Protocol):
    """Turns rows into messages and back. Stateless; a frozen dataclass of options.

    Attributes:
        unbiased: E[decode(encode(x))] = x over the shared and the sender's randomness.
        contractive: E||decode(encode(x)) - x||^2 < ||x||^2 for every x != 0.
        faithful: decodes to within float rounding of x, so a model itself can be sent; others carry only updates.
    """

    @property
    def unbiased(self) -> bool: ...
    @property
    def contractive(self) -> bool: ...
    @property
    def faithful(self) -> bool: ...

    def encode(self, x: Tensor, common: Common, coin: Key) -> Payload:
        """Messages for rows x [M, D] float32; `coin` names randomness that only the sender knows."""
        ...

    def decode(self, payload: Payload, common: Common) -> Tensor:
        """[M, D] float32, from the messages and what both ends know, and nothing else."""
        ...


class Feedback(Protocol):
    """What a sender remembers from message to message."""

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        """First memory, one row a sender ([N, D], or [N, 0] for none), on the device of `like` [D]."""
        ...

    def encode(self, codec: Codec, x: Tensor, memory: Tensor, common: Common, coin: Key) -> tuple[Payload, Tensor]:
        """Messages for x [M, D], given and returning the memory rows [M, ...] of these senders."""
        ...


class Estimator(Protocol):
    """How a receiver turns all messages of a round into one vector."""

    def init(self, num_senders: int, like: Tensor) -> Tensor:
        """First memory of the receiver, one row a sender or empty, on the device of `like` [D]."""
        ...

    def estimate(
        self, codec: Codec, payload: Payload, memory: Tensor, cohort: Cohort, common: Common
    ) -> tuple[Tensor, Tensor]:
        """The estimate [D] of `cohort.weight @ x`, and the receiver's memory afterwards."""
        ...
