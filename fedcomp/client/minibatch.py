"""Mini-batch optimizers: one gradient a step.

Shape legend: N clients in all, D parameters.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcomp.client.contract import Batching
from fedcomp.client.solver import LocalSolver
from fedcomp.core.ranges import Whole


@dataclass(frozen=True, kw_only=True)
class MinibatchSolver(LocalSolver):
    """Steps along gradients of mini-batches, see `Batching`; with `steps` given, `epochs` is left at 1, or None."""

    epochs: Annotated[int | None, Whole()] = 1
    steps: Annotated[int | None, Whole()] = None
    replacement: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is None and self.steps is None:
            raise ValueError("client.epochs and client.steps are both null: give one of them")
        if self.steps is not None and self.epochs not in (None, 1):
            raise ValueError(
                f"client.epochs={self.epochs} and client.steps={self.steps} both say how long a client trains: give "
                "one of them, and null for the other"
            )

    @property
    def batching(self) -> Batching:
        return Batching(self.batch_size, self.epochs or 1, self.steps, self.replacement)

    def check_persistent(self) -> None:
        """It can."""

    def init_persistent(self, num_clients: int, like: Tensor) -> tuple[Tensor, ...]:
        """Memories for `run` to go on from in later rounds: those of `init`, each [N, D], and steps so far [N, 1]."""
        slots = self.init(like.expand(num_clients, -1))
        return (*slots, like.new_zeros(num_clients, 1, dtype=torch.int64))
