"""Small networks: whole gradients, and whole local training, in one call without Python's global lock.

A network is convolutional blocks of few channels, or none, and then dense layers. Clients follow one another, each with
its own samples alone: places of a batch that hold none are left out, so a client's gradient does not depend on those
that are trained beside it.

Arrays are contiguous. `blocks` and `layers` are int64: a row of `blocks` is a `Geometry` without `batch`, then where
weight and bias begin in a client's parameters (bias -1: none), and a perceptron has no rows; `layers` as in
`dense_numba.py`.

Shape legend: M clients, D parameters, S steps, B batch, n samples, X = H * W * C numbers of a sample, F features, O
outputs, P places: the batch filled up to vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from fedcomp.model.batched.compiled.conv_backward_numba import backward_block
from fedcomp.model.batched.compiled.conv_numba import NUMBERS, SLACK, Geometry, forward_block, num_masks, pack, pooled
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
from fedcomp.model.batched.compiled.tile_numba import LANES, fixed, multiply_add
from fedcomp.random.numba_jit import compiled, separate

NUM_SIZES, BLOCK_WEIGHT, BLOCK_BIAS = 12, 12, 13
"""Columns of `blocks`: how many are sizes, and those behind them."""

_ROWS, _PLACES = types.float32[:, ::1], types.int64[::1]


@compiled
def _geometry(block: np.ndarray, batch: int) -> Geometry:
    sizes: Any = (*fixed(block[:NUM_SIZES], NUM_SIZES), batch)
    return Geometry(*sizes)


@compiled
def _num_inputs(size: Geometry) -> int:
    """Numbers of a block's input with the zeros around it, and the slack after it."""
    return size.channels * (size.height + 2 * size.pad) * (size.width + 2 * size.pad) * size.batch + SLACK


@compiled
def _num_masks(size: Geometry) -> int:
    height, width = pooled(size)
    return size.out * height * width * num_masks(size)


@compiled
def _weight(numbers: np.ndarray, block: np.ndarray, size: Geometry) -> np.ndarray:
    first = block[BLOCK_WEIGHT]
    return numbers[first : first + size.out * size.channels * size.kernel_h * size.kernel_w]


@compiled
def _forward(
    theta: np.ndarray, x: np.ndarray, real: np.ndarray, blocks: np.ndarray, layers: np.ndarray, batch: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The forward pass of one client's samples x[real] (B, X).

    Returns:
        The inputs of all blocks one after another and then the features (F, batch), all with slack; without blocks the
        samples (B, F). The masks of the blocks. The inputs of all dense layers (F + H, P). The outputs (O, P), in a
        buffer for P outputs of any layer.
    """
    last, num_features, places = blocks.shape[0] - 1, layers[0, NUM_IN], num_places(real.size)
    num, num_of_masks = num_features * batch + SLACK, 0
    for k in range(last + 1):
        size = _geometry(blocks[k], batch)
        num, num_of_masks = num + _num_inputs(size), num_of_masks + _num_masks(size)
    block_inputs, masks = np.empty(num, np.float32), np.empty(num_of_masks, np.uint16)
    if last >= 0:
        pack(x, real, block_inputs, _geometry(blocks[0], batch))
    at, mask = 0, 0
    for k in range(last + 1):
        size = _geometry(blocks[k], batch)
        end, end_of_masks = at + _num_inputs(size), mask + _num_masks(size)
        after = num if k == last else end + _num_inputs(_geometry(blocks[k + 1], batch))
        bias = np.empty(size.out, np.float32)
        for c in range(size.out):
            bias[c] = theta[blocks[k, BLOCK_BIAS] + c] if blocks[k, BLOCK_BIAS] >= 0 else np.float32(0)
        weight, out = _weight(theta, blocks[k], size), block_inputs[end:after]
        forward_block(block_inputs[at:end], weight, bias, out, masks[mask:end_of_masks], size)
        at, mask = end, end_of_masks
    rows, widest = 0, num_features
    for index in range(layers.shape[0]):
        rows, widest = rows + layers[index, NUM_IN], max(widest, layers[index, NUM_OUT])
    dense_inputs, z = np.empty(rows * places, np.float32), np.empty(widest * places, np.float32)
    if last < 0:
        for b in range(real.size):
            for f in range(num_features):
                block_inputs[b * num_features + f] = x[real[b], f]
        transpose(block_inputs, num_features, real.size, num_features, dense_inputs, places)
    else:
        for f in range(num_features):
            for b in range(places):
                dense_inputs[f * places + b] = block_inputs[at + f * batch + b] if b < real.size else np.float32(0)
    forward_dense(theta, layers, dense_inputs, z[: layers[layers.shape[0] - 1, NUM_OUT] * places], places)
    return block_inputs, masks, dense_inputs, z


forward = separate(_forward, NUMBERS, _ROWS, _PLACES, LAYERS, LAYERS, types.int64)


@compiled
def _client_gradient(
    theta: np.ndarray,
    x: np.ndarray,
    real: np.ndarray,
    classes: np.ndarray,
    targets: np.ndarray,
    blocks: np.ndarray,
    layers: np.ndarray,
    least: int,
    grad: np.ndarray,
) -> float:
    """grad (D) of one client, given at least one sample; its loss, or NO_SUCH_CLASS. Arguments as in `gradient`."""
    batch, places = max(real.size, least), num_places(real.size)
    block_inputs, masks, dense_inputs, g = forward(theta, x, real, blocks, layers, batch)
    layer = layers[layers.shape[0] - 1]
    if targets.size:
        loss = squared_error(g, targets, real, places, layer)
    else:
        loss = cross_entropy(g, classes, real, places, layer)
        if loss == NO_SUCH_CLASS:
            return loss
    spare, transposed = np.empty(g.size, np.float32), np.empty(g.size + LANES, np.float32)
    samples = block_inputs[: 0 if blocks.shape[0] else block_inputs.size]
    backward_dense(theta, layers, dense_inputs, samples, g, spare, transposed, grad, places, real.size)
    if not blocks.shape[0]:
        return loss
    num_features = layers[0, NUM_IN]
    above = np.empty(num_features * batch + SLACK, np.float32)
    for place in range(above.size):
        above[place] = 0
    for f in range(num_features):
        for b in range(real.size):
            above[f * batch + b] = g[f * places + b]
    at, mask = block_inputs.size - above.size, masks.size
    for k in range(blocks.shape[0] - 1, -1, -1):
        size = _geometry(blocks[k], batch)
        end, end_of_masks = at, mask
        at, mask = at - _num_inputs(size), mask - _num_masks(size)
        grad_bias = np.empty(size.out, np.float32)
        if blocks[k, BLOCK_BIAS] >= 0:
            grad_bias = grad[blocks[k, BLOCK_BIAS] : blocks[k, BLOCK_BIAS] + size.out]
        grad_x = np.empty(size.channels * size.height * size.width * batch + SLACK if k else 0, np.float32)
        weights = _weight(theta, blocks[k], size), _weight(grad, blocks[k], size)
        backward_block(above, masks[mask:end_of_masks], block_inputs[at:end], *weights, grad_bias, grad_x, size)
        above = grad_x
    return loss


client_gradient = separate(
    _client_gradient, NUMBERS, _ROWS, _PLACES, _PLACES, _ROWS, LAYERS, LAYERS, types.int64, NUMBERS
)


@compiled
def gradient(
    theta: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    classes: np.ndarray,
    targets: np.ndarray,
    blocks: np.ndarray,
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
            found = client_gradient(
                theta[m], x[m], real[:count], classes[m], targets[m], blocks, layers, least, grad[m]
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
            found = client_gradient(theta[m], x, real[:count], own_classes, own_targets, blocks, layers, least, grad)
            if found == NO_SUCH_CLASS:
                return False
            loss[m] += np.float32(found)
            for place in range(grad.size):
                direction = multiply_add(decay, theta[m, place], grad[place]) if decay else grad[place]
                theta[m, place] = multiply_add(-rate, direction, theta[m, place])
    return True


@compiled
def outputs(
    theta: np.ndarray, x: np.ndarray, blocks: np.ndarray, layers: np.ndarray, least: int, out: np.ndarray
) -> None:
    """out (B, O) of one model theta (D) on x (B, X)."""
    real = np.empty(x.shape[0], np.int64)
    for b in range(real.size):
        real[b] = b
    z, places = forward(theta, x, real, blocks, layers, max(real.size, least))[3], num_places(real.size)
    for b in range(out.shape[0]):
        for o in range(out.shape[1]):
            out[b, o] = z[o * places + b]
