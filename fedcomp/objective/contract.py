"""What a search over settings asks of a run: one number, and whether more of it is better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from fedcomp.records.metrics_file import Line

Direction = Literal["maximize", "minimize"]


class Objective(Protocol):
    """Reads one number off a run's record.

    Attributes:
        direction: which way is better.
    """

    direction: Direction

    def __call__(self, lines: Sequence[Line]) -> float:
        """The number; NaN if the record has none (a search counts such a run as failed)."""
        ...

    def show(self, value: float) -> str:
        """The number for people."""
        ...
