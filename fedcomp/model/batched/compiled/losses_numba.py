"""Losses of one client's outputs and their gradients, computed in float64, compiled for a CPU.

Outputs are flat, (O, P) as `dense_numba.forward_dense` gives them, of the samples `real` (B) of a batch; `layer` is the
last row of its `layers`.

Shape legend: B samples, P places: B filled up to vectors, O outputs.
"""

import math

import numpy as np

from fedcomp.model.batched.compiled.dense_numba import NUM_OUT, RELU
from fedcomp.random.numba_jit import compiled

NO_SUCH_CLASS = -1.0
"""Instead of a loss: a class that is no output."""


@compiled
def cross_entropy(z: np.ndarray, classes: np.ndarray, real: np.ndarray, places: int, layer: np.ndarray) -> float:
    """The mean loss; its gradient before a last ReLU takes the place of the outputs z (O, P)."""
    num_outputs, relu = layer[NUM_OUT], layer[RELU]
    loss, share, p = 0.0, 1.0 / real.size, np.empty(num_outputs, np.float64)
    for b in range(real.size):
        largest, total, chosen = np.float64(z[b]), 0.0, classes[real[b]]
        if chosen < 0 or chosen >= num_outputs:
            return NO_SUCH_CLASS
        for o in range(1, num_outputs):
            largest = max(largest, np.float64(z[o * places + b]))
        for o in range(num_outputs):
            p[o] = math.exp(np.float64(z[o * places + b]) - largest)
            total += p[o]
        loss += math.log(total) - (np.float64(z[chosen * places + b]) - largest)
        for o in range(num_outputs):
            positive = not relu or z[o * places + b] > 0
            z[o * places + b] = (p[o] / total - (o == chosen)) * share if positive else 0.0
    return loss * share


@compiled
def squared_error(z: np.ndarray, targets: np.ndarray, real: np.ndarray, places: int, layer: np.ndarray) -> float:
    """As `cross_entropy`; targets (B, O)."""
    loss, num_outputs, relu = 0.0, layer[NUM_OUT], layer[RELU]
    share = 1.0 / (real.size * num_outputs)
    for b in range(real.size):
        for o in range(num_outputs):
            positive = not relu or z[o * places + b] > 0
            error = np.float64(z[o * places + b]) - np.float64(targets[real[b], o])
            loss += error * error
            z[o * places + b] = 2.0 * error * share if positive else 0.0
    return loss * share
