"""Cuts a round's steps into segments that recur in later rounds: 1, 2, 4, ... steps of one shape.

The number of steps of a cohort with unequal clients differs from round to round. A graph of one round's exact steps
could not be replayed in the next; these few segments can. The number of active clients is rounded up to a power of two,
so a segment may have clients that are done: their samples are masked, and their parameters do not change.

Shape legend: S steps, M clients of a chunk, R rows of a segment, B batch.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

LONGEST = 64
"""Maximum number of steps of a segment: the memory and the time of its capture grow with them."""


@dataclass(frozen=True)
class Shape:
    """What all steps of a segment have in common.

    Attributes:
        rows: R, the first clients of the chunk. batch: samples of each.
        masked: whether some of these places hold no sample.
    """

    rows: int
    batch: int
    masked: bool


def segments(counts: np.ndarray, batch: int) -> Iterator[tuple[int, int, Shape]]:
    """(first step, steps, shape) of the segments that make up a round, in order.

    Args:
        counts: [S, M] samples that each client takes in each step, clients sorted by falling number of steps.
        batch: B, the widest.
    """
    shapes = [_shape(row, batch) for row in counts]
    first = 0
    for shape, run in itertools.groupby(shapes):
        left = sum(1 for _ in run)
        while left:
            steps = min(1 << (left.bit_length() - 1), LONGEST)
            yield first, steps, shape
            first, left = first + steps, left - steps


def _shape(counts: np.ndarray, batch: int) -> Shape:
    """Exact where all clients take as many samples; otherwise of few widths and numbers of clients."""
    num_clients, active, longest = len(counts), int((counts > 0).sum()), int(counts.max())
    if active == num_clients and (counts == longest).all():
        return Shape(num_clients, longest, masked=False)
    rows = min(num_clients, 1 << (active - 1).bit_length())
    return Shape(rows, batch, masked=rows > active or bool((counts[:active] < batch).any()))
