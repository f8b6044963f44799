"""`order.apply` compiled for CPUs: without a tensor of places."""

from __future__ import annotations

import numpy as np

from fedcomp.random.numba_jit import compiled


@compiled
def apply(values: np.ndarray, first: int, steps: np.ndarray, starts: np.ndarray, inverse: bool) -> None:
    """In place on values[:, first:] [M, n] float32; `steps` and `starts` [M] int64."""
    for row in range(values.shape[0]):
        piece = values[row, first:]
        before, step, place = piece.copy(), steps[row], starts[row]
        for index in range(piece.size):
            if inverse:
                piece[place] = before[index]
            else:
                piece[index] = before[place]
            place += step
            if place >= piece.size:
                place -= piece.size
