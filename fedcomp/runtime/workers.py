"""Threads over independent pieces of work: chunks of clients, batches of test samples.

Every piece is computed by one thread alone, so results are the same bit for bit whatever the number of threads; on a
CPU this is also faster than letting torch split the small operations of one chunk over the cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

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


def num_cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1
