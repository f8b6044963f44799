"""What a server optimizer is. Shape legend: D parameters."""

from abc import ABC, abstractmethod

from torch import Tensor

from fedcomp.core.ranges import CheckedOptions

Slots = tuple[Tensor, ...]


class ServerOptimizer(CheckedOptions, ABC):
    """Turns the aggregated update of the clients into the server's step; a value, its memory goes in and out."""

    prefix = "server."

    @abstractmethod
    def init(self, theta: Tensor) -> Slots:
        """First memories for parameters theta [D]."""

    @abstractmethod
    def step(self, update: Tensor, slots: Slots, theta: Tensor) -> tuple[Tensor, Slots]:
        """(the step [D] that is added to theta [D] for an update [D], the mean of theta_i - theta; slots)."""
