"""What a server optimizer is. Shape legend: D parameters."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

Slots = tuple[Tensor, ...]


class ServerOptimizer(Protocol):
    """Turns the aggregated update of the clients into the server's step; a value, its memory goes in and out."""

    def init(self, theta: Tensor) -> Slots:
        """First memories for parameters theta [D]."""
        ...

    def step(self, update: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        """The step [D] that is added to theta for an aggregated update [D] (mean of theta_i - theta)."""
        ...
