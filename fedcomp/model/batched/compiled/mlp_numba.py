"""Small perceptrons of M clients, forwards and backwards, compiled for a CPU; one client after another.

The layers are those of `dense_numba.py`, with the bits of the tensor code in `backward/dense.py` wherever torch's
products are chains of fused multiply-adds: those of MKL are, with AVX-512 and the sizes of `backward/mlp_compiled.py`.
The softmax between forward and backward pass is torch's. A step of SGD is two calls, `forward_samples` before it and
`descend` after it.

Arrays are contiguous float32; `layers` as in `dense_numba.py`.

Shape legend: M clients, D parameters, B batch, P places: B filled up to vectors, n samples, F features of the input, H
outputs of all layers but the last.
"""

from __future__ import annotations

import numpy as np

from fedcomp.model.batched.compiled.dense_numba import NUM_OUT, backward_dense, forward_dense, num_places, transpose
from fedcomp.model.batched.compiled.sums_numba import total_of
from fedcomp.model.batched.compiled.tile_numba import LANES, multiply_add
from fedcomp.random.numba_jit import borrowed, compiled


@compiled
def forward(theta: np.ndarray, x: np.ndarray, layers: np.ndarray, inputs: np.ndarray, z: np.ndarray) -> None:
    """Outputs of all clients, z (M, O, B), and for `backward` the inputs of all layers (M, (F + H) P).

    theta: (M, D). x: (M, B, F).
    """
    theta, x, layers, inputs = borrowed(theta), borrowed(x), borrowed(layers), borrowed(inputs)
    (num_clients, num_outputs, batch), places = z.shape, num_places(z.shape[2])
    out = np.empty(num_outputs * places, np.float32)
    for m in range(num_clients):
        transpose(x[m].reshape(-1), x.shape[2], batch, x.shape[2], inputs[m], places)
        forward_dense(theta[m], layers, inputs[m], out, places)
        for o in range(num_outputs):
            for b in range(batch):
                z[m, o, b] = out[o * places + b]


@compiled
def forward_samples(
    theta: np.ndarray,
    samples: np.ndarray,
    offset: np.ndarray,
    scale: np.ndarray,
    numbers: np.ndarray,
    layers: np.ndarray,
    x: np.ndarray,
    inputs: np.ndarray,
    z: np.ndarray,
) -> None:
    """As `forward`, of the samples `numbers` (M, B) int64: x (M, B, F) = offset + scale * raw, which is written too.

    samples: (n, F) raw, uint8 or float32. offset, scale: (F).
    """
    for m in range(numbers.shape[0]):
        for b in range(numbers.shape[1]):
            number = numbers[m, b]
            for f in range(offset.size):
                x[m, b, f] = multiply_add(np.float32(samples[number, f]), scale[f], offset[f])
    forward(theta, x, layers, inputs, z)


@compiled
def cross_entropy(log_p: np.ndarray, p: np.ndarray, y: np.ndarray, loss: np.ndarray) -> None:
    """Adds each client's mean over its batch to loss (M); its gradient at the outputs takes the place of p (M, O, B).

    log_p: (M, O, B) log softmax of the outputs. p: its exponential. y: (M, B) int64 classes.
    """
    num_clients, num_outputs, batch = p.shape
    share, picked = np.float32(1.0 / batch), np.empty(batch, np.float32)
    for m in range(num_clients):
        for b in range(batch):
            picked[b] = log_p[m, y[m, b], b]
            p[m, y[m, b], b] += np.float32(-1)
        loss[m] += total_of(picked, 0, batch) * -share
        for o in range(num_outputs):
            for b in range(batch):
                p[m, o, b] *= share


@compiled
def backward(
    theta: np.ndarray, x: np.ndarray, layers: np.ndarray, inputs: np.ndarray, g: np.ndarray, grad: np.ndarray
) -> None:
    """grad (M, D) of all clients, given the gradient g (M, O, B) at the outputs before a last ReLU.

    theta, x, inputs: as in `forward`.
    """
    theta, x, layers, inputs, grad = borrowed(theta), borrowed(x), borrowed(layers), borrowed(inputs), borrowed(grad)
    (num_clients, num_outputs, batch), places = g.shape, num_places(g.shape[2])
    widest = 0
    for index in range(layers.shape[0]):
        widest = max(widest, layers[index, NUM_OUT] * places)
    above, spare = np.zeros(widest, np.float32), np.empty(widest, np.float32)
    transposed = np.empty(widest + LANES, np.float32)
    for m in range(num_clients):
        for o in range(num_outputs):
            for b in range(batch):
                above[o * places + b] = g[m, o, b]
        backward_dense(theta[m], layers, inputs[m], x[m].reshape(-1), above, spare, transposed, grad[m], places, batch)


@compiled
def descend(
    theta: np.ndarray,
    x: np.ndarray,
    layers: np.ndarray,
    inputs: np.ndarray,
    g: np.ndarray,
    grad: np.ndarray,
    rate: float,
    decay: float,
) -> None:
    """`backward`, and then theta <- theta - rate (grad + decay theta); `rate` and `decay` are float32."""
    backward(theta, x, layers, inputs, g, grad)
    for m in range(theta.shape[0]):
        for place in range(theta.shape[1]):
            direction = multiply_add(decay, theta[m, place], grad[m, place]) if decay else grad[m, place]
            theta[m, place] = multiply_add(-rate, direction, theta[m, place])
