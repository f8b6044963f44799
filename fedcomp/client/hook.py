"""A gradient hook that lists what it reads, so that its loop can be captured once and replayed in later rounds.

Shape legend: M clients of a chunk, A of them still at work, D parameters.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedcomp.model.contract import Batch, Gradient
from fedcomp.random.keys import Key


class Draws(Protocol):
    """Keyed draws of one step: a `Key`, or in a captured loop a `DeviceKey`."""

    def uniform(self, ids_M: Tensor, num: int, start: int = 0) -> Tensor:
        """As `Key.uniform`."""


@dataclass(frozen=True)
class Reads:
    """What a hook may read besides its arguments.

    Attributes:
        step: number of the step; in a captured loop a tensor of no axes, so that the hook must not branch on it.
        rows, shared: as in `Hook`, or copies of them; rows of clients who are not at work may follow.
        draws: what `Hook.key.fold_in(step)` draws.
    """

    step: int | Tensor
    rows: tuple[Tensor, ...]
    shared: tuple[Tensor, ...]
    draws: Draws


@dataclass(frozen=True)
class Hook:
    """A `GradFn` in two parts: a function, and the values of the round that it reads.

    Attributes:
        function: gradient = function(theta [A, D], batch, reads); reads nothing else that changes between rounds, and
            changes none of its arguments.
        name: hooks with equal names have functions that compute the same.
        rows, shared: what differs between rounds: tensors [M, ...] of the chunk's clients, and what they share.
        key: names the round's draws; step s draws from `key.fold_in(s)`.
    """

    function: Callable[[Tensor, Batch, Reads], Gradient]
    name: Hashable
    rows: tuple[Tensor, ...]
    shared: tuple[Tensor, ...]
    key: Key

    def __call__(self, theta: Tensor, batch: Batch, step: int) -> Gradient:
        """The gradient of step `step`."""
        return self.function(theta, batch, Reads(step, self.rows, self.shared, self.key.fold_in(step)))
