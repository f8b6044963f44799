"""How many samples every client of a chunk takes in every step of its local training, known to the host.

Shape legend: M clients of a chunk, S steps.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

StepShape = tuple[int, int, bool]
"""Clients still at work, samples of the largest batch, whether batches differ in size."""


@dataclass(frozen=True, eq=False)
class StepCounts:
    """The same in all rounds of the same clients, and so are its sums, which are computed when they are first read.

    Attributes:
        of_steps: [S, M] int64, 0 after a client's last step; clients are sorted by falling number of steps.
    """

    of_steps: np.ndarray

    @cached_property
    def shapes(self) -> list[StepShape]:
        """Of each step."""
        counts = self.of_steps
        active, longest = (counts > 0).sum(1), counts.max(1)
        ragged = ((counts > 0) & (counts < longest[:, None])).any(1)
        return list(zip(active.tolist(), longest.tolist(), ragged.tolist(), strict=True))

    @cached_property
    def num_steps(self) -> np.ndarray:
        """[M] int64 steps of each client."""
        return (self.of_steps > 0).sum(0)

    @cached_property
    def of_clients(self) -> np.ndarray:
        """[M] int64 samples of each client in all steps."""
        return self.of_steps.sum(0)
