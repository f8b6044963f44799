"""Networks of few channels: whole gradients, and whole local training, in one call without Python's global lock.

Clients follow one another, each with its own samples alone: places of a batch that hold none are left out, so a
client's gradient does not depend on those that are trained beside it. Losses are computed in float64.

Arrays are contiguous. `blocks` and `layers` are int64: a row of `blocks` is a `Geometry` without `batch`, then where
weight and bias begin in a client's parameters (bias -1: none); `layers` as in `dense_numba.py`.

Shape legend: M clients, D parameters, S steps, B batch, n samples, X = H * W * C numbers of a sample, F features, O
outputs, P places: the batch filled up to vectors.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from fedcomp.model.batched.compiled.conv_backward_numba import backward_block
from fedcomp.model.batched.compiled.conv_numba import NUMBERS, SLACK, Geometry, forward_block, num_codes, pack, pooled
from fedcomp.model.batched.compiled.dense_numba import LAYERS, backward_dense, forward_dense
from fedcomp.model.batched.compiled.tile_numba import LANES, multiply_add
from fedcomp.random.numba_jit import compiled, separate

NO_SUCH_CLASS = -1.0
"""Instead of a loss: a class that is no output."""

_ROWS, _PLACES = types.float32[:, ::1], types.int64[::1]


@compiled
def _num_places(batch: int) -> int:
    """P."""
    return -(-batch // LANES) * LANES


@compiled
def _geometry(block: np.ndarray, batch: int) -> Geometry:
    sizes = block[0], block[1], block[2], block[3], block[4], block[5], block[6]
    return Geometry(*sizes, block[7], block[8], block[9], block[10], block[11], batch)


@compiled
def _num_inputs(size: Geometry) -> int:
    """Numbers that a block's input has with the zeros around it, and after it."""
    return size.channels * (size.height + 2 * size.pad) * (size.width + 2 * size.pad) * size.batch + SLACK


@compiled
def _num_codes(size: Geometry) -> int:
    height, width = pooled(size)
    return size.out * height * width * num_codes(size)


@compiled
def _weight(numbers: np.ndarray, block: np.ndarray) -> np.ndarray:
    return numbers[block[12] : block[12] + block[4] * block[0] * block[5] * block[6]]


@compiled
def _values(
    theta: np.ndarray, x: np.ndarray, real: np.ndarray, blocks: np.ndarray, layers: np.ndarray, batch: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What one client's samples x[real] (B, X) become.

    Returns:
        The inputs of all blocks one after another and then the features (F, batch), all with slack. The codes of the
        blocks. The inputs of all dense layers (F + H, P). The outputs (O, P), with room for P numbers of every layer.
    """
    last, num_features, places = blocks.shape[0] - 1, layers[0, 0], _num_places(real.size)
    num, num_of_codes = num_features * batch + SLACK, 0
    for k in range(last + 1):
        size = _geometry(blocks[k], batch)
        num, num_of_codes = num + _num_inputs(size), num_of_codes + _num_codes(size)
    room, codes = np.empty(num, np.float32), np.empty(num_of_codes, np.uint16)
    pack(x, real, room, _geometry(blocks[0], batch))
    at, code = 0, 0
    for k in range(last + 1):
        size = _geometry(blocks[k], batch)
        end, last_code = at + _num_inputs(size), code + _num_codes(size)
        after = num if k == last else end + _num_inputs(_geometry(blocks[k + 1], batch))
        bias = np.empty(size.out, np.float32)
        for c in range(size.out):
            bias[c] = theta[blocks[k, 13] + c] if blocks[k, 13] >= 0 else np.float32(0)
        forward_block(room[at:end], _weight(theta, blocks[k]), bias, room[end:after], codes[code:last_code], size)
        at, code = end, last_code
    rows, widest = 0, num_features
    for index in range(layers.shape[0]):
        rows, widest = rows + layers[index, 0], max(widest, layers[index, 1])
    held, z = np.empty(rows * places, np.float32), np.empty(widest * places, np.float32)
    for f in range(num_features):
        for b in range(places):
            held[f * places + b] = room[at + f * batch + b] if b < real.size else np.float32(0)
    forward_dense(theta, layers, held, z[: layers[layers.shape[0] - 1, 1] * places], places)
    return room, codes, held, z


values = separate(_values, NUMBERS, _ROWS, _PLACES, LAYERS, LAYERS, types.int64)


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
    batch, places = max(real.size, least), _num_places(real.size)
    room, codes, held, g = values(theta, x, real, blocks, layers, batch)
    layer = layers[layers.shape[0] - 1]
    if targets.size:
        loss = _squared_error(g, targets, real, places, layer)
    else:
        loss = _cross_entropy(g, classes, real, places, layer)
        if loss == NO_SUCH_CLASS:
            return loss
    nothing, spare, turned = np.empty(0, np.float32), np.empty(g.size, np.float32), np.empty(g.size + LANES, np.float32)
    backward_dense(theta, layers, held, nothing, g, spare, turned, grad, places, real.size)
    num_features = layers[0, 0]
    above = np.empty(num_features * batch + SLACK, np.float32)
    for place in range(above.size):
        above[place] = 0
    for f in range(num_features):
        for b in range(real.size):
            above[f * batch + b] = g[f * places + b]
    at, code = room.size - above.size, codes.size
    for k in range(blocks.shape[0] - 1, -1, -1):
        size = _geometry(blocks[k], batch)
        end, last_code = at, code
        at, code = at - _num_inputs(size), code - _num_codes(size)
        of_bias = np.empty(size.out, np.float32)
        if blocks[k, 13] >= 0:
            of_bias = grad[blocks[k, 13] : blocks[k, 13] + size.out]
        for_x = np.empty(size.channels * size.height * size.width * batch + SLACK if k else 0, np.float32)
        weights = _weight(theta, blocks[k]), _weight(grad, blocks[k])
        backward_block(above, codes[code:last_code], room[at:end], *weights, of_bias, for_x, size)
        above = for_x
    return loss


@compiled
def _cross_entropy(z: np.ndarray, classes: np.ndarray, real: np.ndarray, places: int, layer: np.ndarray) -> float:
    """The mean loss; its gradient before a last ReLU takes the place of the outputs z (O, P)."""
    num_outputs, relu = layer[1], layer[4]
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
def _squared_error(z: np.ndarray, targets: np.ndarray, real: np.ndarray, places: int, layer: np.ndarray) -> float:
    """As `_cross_entropy`; targets (B, O)."""
    loss, num_outputs, relu = 0.0, layer[1], layer[4]
    share = 1.0 / (real.size * num_outputs)
    for b in range(real.size):
        for o in range(num_outputs):
            positive = not relu or z[o * places + b] > 0
            error = np.float64(z[o * places + b]) - np.float64(targets[real[b], o])
            loss += error * error
            z[o * places + b] = 2.0 * error * share if positive else 0.0
    return loss * share


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
        theta: (M, D). x: (M, B, X), channels last. weight: (M, B), above 0 where there is a sample; empty: everywhere.
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
    z, places = values(theta, x, real, blocks, layers, max(real.size, least))[3], _num_places(real.size)
    for b in range(out.shape[0]):
        for o in range(out.shape[1]):
            out[b, o] = z[o * places + b]
