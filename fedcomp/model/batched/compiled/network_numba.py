"""Small networks: whole gradients, and whole local training, in one call without Python's global lock.

A network is convolutional blocks of few channels, or none, and then dense layers. Clients follow one another, each with
its own samples alone: places of a batch that hold none are left out, so a client's gradient does not depend on those
that are trained beside it.

Arrays are contiguous. `blocks` and their `addresses` are those of `blocks_numba.py`; a perceptron has no rows in
`blocks`, and then nothing is called at `addresses`. `layers` as in `dense_numba.py`.

Shape legend: M clients, D parameters, S steps, B batch, n samples, X = H * W * C numbers of a sample, F features, O
outputs, P places: the batch filled up to vectors.
"""

import numpy as np
from numba import types

from fedcomp.model.batched.compiled.dense_numba import (
    LAYERS,
    NUM_IN,
    NUM_OUT,
    backward_dense,
    forward_dense,
    num_places,
    transpose,
)
from fedcomp.model.batched.compiled.losses_numba import NO_SUCH_CLASS, cross_entropy, squared_error
from fedcomp.model.batched.compiled.tile_numba import LANES, SLACK, multiply_add
from fedcomp.random.numba_jit import called_at, compiled, separate

_NUMBERS, _MASKS, _ROWS = types.float32[::1], types.uint16[::1], types.float32[:, ::1]
_PLACES, _NUM = types.int64[::1], types.int64
"""numba's types of the arguments."""
BLOCKS_FORWARD = types.Tuple((_NUMBERS, _MASKS))(_NUMBERS, _ROWS, _PLACES, LAYERS, _NUM)
BLOCKS_BACKWARD = types.none(_NUMBERS, LAYERS, _NUM, _NUMBERS, _MASKS, _NUMBERS, _NUMBERS)
"""What the functions at `addresses` take and return."""
_blocks_forward, _blocks_backward = called_at(BLOCKS_FORWARD), called_at(BLOCKS_BACKWARD)


@separate(_NUMBERS, _ROWS, _PLACES, LAYERS, _PLACES, LAYERS, _NUM)
def _forward(
    theta: np.ndarray,
    x: np.ndarray,
    real: np.ndarray,
    blocks: np.ndarray,
    addresses: np.ndarray,
    layers: np.ndarray,
    batch: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The forward pass of one client's samples x[real] (B, X).

    Returns:
        What the blocks return; without blocks the samples (B, F), with slack, and nothing. The inputs of all dense
        layers (F + H, P). The outputs (O, P), in a buffer for P outputs of any layer.
    """
    num_features, places = layers[0, NUM_IN], num_places(real.size)
    if blocks.shape[0]:
        samples, masks = _blocks_forward(addresses[0], theta, x, real, blocks, batch)
    else:
        samples, masks = np.empty(num_features * batch + SLACK, np.float32), np.empty(0, np.uint16)
    rows, widest = 0, num_features
    for index in range(layers.shape[0]):
        rows, widest = rows + layers[index, NUM_IN], max(widest, layers[index, NUM_OUT])
    dense_inputs, z = np.empty(rows * places, np.float32), np.empty(widest * places, np.float32)
    if blocks.shape[0]:
        first = samples.size - num_features * batch - SLACK
        for f in range(num_features):
            for b in range(places):
                dense_inputs[f * places + b] = samples[first + f * batch + b] if b < real.size else np.float32(0)
    else:
        for b in range(real.size):
            for f in range(num_features):
                samples[b * num_features + f] = x[real[b], f]
        transpose(samples, num_features, real.size, num_features, dense_inputs, places)
    forward_dense(theta, layers, dense_inputs, z[: layers[layers.shape[0] - 1, NUM_OUT] * places], places)
    return samples, masks, dense_inputs, z


@separate(_NUMBERS, _ROWS, _PLACES, _PLACES, _ROWS, LAYERS, _PLACES, LAYERS, _NUM, _NUMBERS)
def _client_gradient(
    theta: np.ndarray,
    x: np.ndarray,
    real: np.ndarray,
    classes: np.ndarray,
    targets: np.ndarray,
    blocks: np.ndarray,
    addresses: np.ndarray,
    layers: np.ndarray,
    least: int,
    grad: np.ndarray,
) -> float:
    """grad (D) of one client, given at least one sample; its loss, or NO_SUCH_CLASS. Arguments as in `gradient`."""
    batch, places = max(real.size, least), num_places(real.size)
    samples, masks, dense_inputs, g = _forward(theta, x, real, blocks, addresses, layers, batch)
    layer = layers[layers.shape[0] - 1]
    if targets.size:
        loss = squared_error(g, targets, real, places, layer)
    else:
        loss = cross_entropy(g, classes, real, places, layer)
        if loss == NO_SUCH_CLASS:
            return loss
    spare, transposed = np.empty(g.size, np.float32), np.empty(g.size + LANES, np.float32)
    known = samples[: 0 if blocks.shape[0] else samples.size]
    backward_dense(theta, layers, dense_inputs, known, g, spare, transposed, grad, places, real.size)
    if blocks.shape[0]:
        num_features = layers[0, NUM_IN]
        above = np.empty(num_features * batch + SLACK, np.float32)
        for place in range(above.size):
            above[place] = 0
        for f in range(num_features):
            for b in range(real.size):
                above[f * batch + b] = g[f * places + b]
        _blocks_backward(addresses[1], theta, blocks, batch, samples, masks, above, grad)
    return loss


@compiled
def gradient(
    theta: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    classes: np.ndarray,
    targets: np.ndarray,
    blocks: np.ndarray,
    addresses: np.ndarray,
    layers: np.ndarray,
    least: int,
    grad: np.ndarray,
    loss: np.ndarray,
) -> bool:
    """grad (M, D) and loss (M) of every client's mean loss; False, and nothing of use, if a class is no output.

    Args:
        theta: (M, D). x: (M, B, X), channels last where there are blocks.
        weight: (M, B), above 0 where there is a sample; empty: everywhere.
        classes: (M, B) int64, for cross-entropy. targets: (M, B, O), for the squared error; empty for the other.
        least: places of a batch in the blocks, at least.
    """
    for m in range(theta.shape[0]):
        real, count = np.empty(x.shape[1], np.int64), 0
        for b in range(x.shape[1]):
            if not weight.size or weight[m, b] > 0:
                real[count] = b
                count += 1
        loss[m] = 0
        if count:
            found = _client_gradient(
                theta[m], x[m], real[:count], classes[m], targets[m], blocks, addresses, layers, least, grad[m]
            )
            if found == NO_SUCH_CLASS:
                return False
            loss[m] = found
        else:
            for place in range(grad.shape[1]):
                grad[m, place] = 0
    return True


@compiled
def train(
    theta: np.ndarray,
    pixels: np.ndarray,
    samples: np.ndarray,
    classes: np.ndarray,
    targets: np.ndarray,
    offset: np.ndarray,
    scale: np.ndarray,
    numbers: np.ndarray,
    counts: np.ndarray,
    rate: float,
    decay: float,
    blocks: np.ndarray,
    addresses: np.ndarray,
    layers: np.ndarray,
    least: int,
    loss: np.ndarray,
) -> bool:
    """All local steps of plain SGD, of every client: theta (M, D) <- theta - rate (gradient + decay theta).

    False, and nothing of use, if a class is no output.

    Args:
        pixels: (n, X) raw inputs if uint8, else empty. Networks see offset + scale * raw (X).
        samples: (n, X) raw inputs if float32, else empty.
        classes: (n) int64, for cross-entropy. targets: (n, O), for the squared error; empty for the other.
        numbers: (S, M, B) int64 samples of each step, of which the first `counts` (S, M) are real.
        loss: (M) the sum over steps of the mean loss, which is written.
    """
    (num_steps, num_clients, batch), num = numbers.shape, offset.size
    x, grad, real = np.empty((batch, num), np.float32), np.empty(theta.shape[1], np.float32), np.empty(batch, np.int64)
    own_classes, own_targets = np.empty(batch, np.int64), np.empty((batch, targets.shape[1]), np.float32)
    for m in range(num_clients):
        loss[m] = 0
        for step in range(num_steps):
            count = counts[step, m]
            for b in range(count):
                number, real[b] = numbers[step, m, b], b
                for place in range(num):
                    raw = np.float32(pixels[number, place]) if pixels.size else samples[number, place]
                    x[b, place] = multiply_add(raw, scale[place], offset[place])
                if targets.size:
                    for o in range(targets.shape[1]):
                        own_targets[b, o] = targets[number, o]
                else:
                    own_classes[b] = classes[number]
            if not count:
                continue
            found = _client_gradient(
                theta[m], x, real[:count], own_classes, own_targets, blocks, addresses, layers, least, grad
            )
            if found == NO_SUCH_CLASS:
                return False
            loss[m] += np.float32(found)
            for place in range(grad.size):
                direction = multiply_add(decay, theta[m, place], grad[place]) if decay else grad[place]
                theta[m, place] = multiply_add(-rate, direction, theta[m, place])
    return True


@compiled
def outputs(
    theta: np.ndarray,
    x: np.ndarray,
    blocks: np.ndarray,
    addresses: np.ndarray,
    layers: np.ndarray,
    least: int,
    out: np.ndarray,
) -> None:
    """out (B, O) of one model theta (D) on x (B, X)."""
    real = np.empty(x.shape[0], np.int64)
    for b in range(real.size):
        real[b] = b
    z, places = _forward(theta, x, real, blocks, addresses, layers, max(real.size, least))[3], num_places(real.size)
    for b in range(out.shape[0]):
        for o in range(out.shape[1]):
            out[b, o] = z[o * places + b]
