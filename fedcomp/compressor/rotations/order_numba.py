"""`order.apply` compiled for CPUs: without a tensor of positions."""

import numpy as np

from fedcomp.random.numba_jit import compiled


@compiled
def apply(values: np.ndarray, first: int, steps: np.ndarray, starts: np.ndarray, inverse: bool) -> None:
    """Order `values[:, first:]`, [M, n] float32, in place; `steps` and `starts`, [M] uint32, are below n."""
    size = np.uint32(values.shape[1] - first)
    before = np.empty(size, np.float32)
    for row in range(values.shape[0]):
        piece, step, position = values[row, first:], steps[row], starts[row]
        before[:] = piece
        back = np.uint32(size - step)  # a step ahead or `back` behind is the same position modulo n
        for index in range(size):
            if inverse:
                piece[position] = before[index]
            else:
                piece[index] = before[position]
            position = position - back if position >= back else position + step
