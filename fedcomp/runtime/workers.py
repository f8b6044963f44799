"""Threads and processes that share independent pieces of work: chunks of clients, batches of test samples.

Every piece is computed by one thread alone, so results are the same bit for bit whatever the number of threads and
processes; on a CPU this is also faster than letting torch split the small operations of one chunk over the cores.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class Workers:
    """A pool of `num` threads; one works in the caller's own thread.

    Torch's own threads within a piece are switched off in the pool, and should be in the caller:
    `torch.set_num_threads(1)`.
    """

    def __init__(self, num: int = 1) -> None:
        self.num = num
        self._pool = ThreadPoolExecutor(num, initializer=torch.set_num_threads, initargs=(1,)) if num > 1 else None

    def map(self, function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Iterable[Result]:
        """`function` of every piece, in their order; the first exception is raised here."""
        if self._pool is None or len(pieces) < 2:
            return map(function, pieces)
        return self._pool.map(function, pieces)


class ProcessGroup:
    """The processes that share the pieces, and which of them this is; this class: one process, which computes all."""

    rank: int
    size: int

    def __init__(self) -> None:
        self.rank, self.size = 0, 1

    def split(self, pieces: Sequence[np.ndarray], cost: Callable[[np.ndarray], int]) -> list[list[np.ndarray]]:
        """The pieces of each process.

        Args:
            pieces: the rows [R] of a result that each piece of work makes. cost: of a piece, in any unit.
        """
        return [list(pieces)]

    def gather(self, rows: Any, shares: Sequence[Sequence[np.ndarray]]) -> Any:
        """All rows: `rows`, a tree of tensors [M, ...] with this process's rows, completed by those of the others.

        Args:
            rows: None where this process has no piece. shares: the pieces of each process, as `split` gave them.
        """
        return rows

    def common(self, names: list[str] | None) -> list[str] | None:
        """Those names of this process that all others have too, in an order that is the same in all; None: no say."""
        return names

    def sum_on_host(self, counts: np.ndarray) -> np.ndarray:
        """Int64: the sum of every process's counts that the host knows, one by one."""
        return counts

    def sum_rows(self, counts: np.ndarray | Tensor) -> np.ndarray | Tensor:
        """[M] int64: the sum of every process's counts, row by row."""
        return counts


def names_of_all(every: Sequence[Iterable[str]]) -> list[str] | None:
    """The names that all have, in the order of the first; None: there are none to ask."""
    others = [set(names) for names in every[1:]]
    return [name for name in every[0] if all(name in names for names in others)] if every else None
