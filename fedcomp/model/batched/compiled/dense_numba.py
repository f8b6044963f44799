"""The dense layers of one client, forwards and backwards, compiled for a CPU.

Forwards and for the gradient at the input of a layer, the batch is the innermost axis, filled up to whole vectors; for
the gradient of a weight it is the input's features. Tiles of results stay in registers.

Every number of a matrix product is one chain of fused multiply-adds over the summed axis, in its order, that starts at
0; a bias is added afterwards. Sums over the batch have the order of torch's. So every processor computes the same bits,
whatever its vectors hold and whatever tiles the numbers are in, and those of the tensor code in `backward/dense.py`
wherever torch's products are such chains.

Arrays are flat float32. `layers` is int64, one row a layer: numbers of inputs I and outputs O, where weight [O, I] and
bias [O] begin in the client's parameters (bias -1: none), and 1 where ReLU follows.

Shape legend: D parameters, B batch, P places: B filled up to vectors, F features of the input, H outputs of all layers
but the last.
"""

import numpy as np
from numba import types

from fedcomp.model.batched.compiled.sums_numba import SUM_BLOCK, SUM_COLUMNS, interleaved, total_of
from fedcomp.model.batched.compiled.tile_numba import (
    LANES,
    WIDE,
    add_scaled,
    load,
    store,
    store_first,
    transpose_tile,
    zeros,
)
from fedcomp.model.batched.compiled.tile_values_numba import add, add_to_rows, positive_or_nan, relu, select
from fedcomp.random.numba_jit import borrowed, compiled, inlined, separate

_NUMBERS, LAYERS, _LAYER, _NUM = types.float32[::1], types.int64[:, ::1], types.int64[::1], types.int64
"""numba's types of the arguments."""
NUM_IN, NUM_OUT, WEIGHT, BIAS, RELU = range(5)
"""Columns of `layers`."""
BROAD, COLUMNS = (6, 4) if WIDE else (6, 1)
"""Rows of a tile of outputs, and its vectors, where so many are left."""
NARROW = 8 if WIDE else 6
"""Rows of a tile of one vector."""
WEIGHT_ROWS, WEIGHT_COLUMNS = (4, 4) if WIDE else (6, 1)
"""Of a tile of a weight's gradient."""


@compiled
def num_places(batch: int) -> int:
    """P."""
    return -(-batch // LANES) * LANES


@inlined
def _product(
    theta: np.ndarray,
    weight: int,
    stride: int,
    step: int,
    bias: int,
    relu_follows: bool,
    a: np.ndarray,
    num_in: np.int64,
    out: np.ndarray,
    num_out: np.int64,
    places: int,
) -> None:
    """out (O, P) = activation(W a + b), a (I, P), with W[o, i] = theta[weight + o stride + i step]; bias -1: no b."""
    p = np.int64(0)
    while p < places:
        wide = places - p >= COLUMNS * LANES and num_out >= BROAD
        o = np.int64(0)
        while o < num_out:  # the last rows may be computed again
            if wide:
                o = min(o, num_out - BROAD)
                broad = zeros(BROAD, COLUMNS)
                for i in range(num_in):
                    broad = add_scaled(broad, theta, weight + o * stride + i * step, stride, a, i * places + p)
                if bias >= 0:
                    broad = add_to_rows(broad, theta, bias + o)
                if relu_follows:
                    broad = relu(broad)
                store(broad, out, o * places + p, places)
                o += BROAD
            elif num_out >= NARROW:
                o = min(o, num_out - NARROW)
                narrow = zeros(NARROW, 1)
                for i in range(num_in):
                    narrow = add_scaled(narrow, theta, weight + o * stride + i * step, stride, a, i * places + p)
                if bias >= 0:
                    narrow = add_to_rows(narrow, theta, bias + o)
                if relu_follows:
                    narrow = relu(narrow)
                store(narrow, out, o * places + p, places)
                o += NARROW
            else:
                one = zeros(1, 1)
                for i in range(num_in):
                    one = add_scaled(one, theta, weight + o * stride + i * step, 1, a, i * places + p)
                if bias >= 0:
                    one = add_to_rows(one, theta, bias + o)
                if relu_follows:
                    one = relu(one)
                store(one, out, o * places + p, places)
                o += 1
        p += COLUMNS * LANES if wide else LANES


@separate(_NUMBERS, _LAYER, _NUMBERS, _NUMBERS, _NUM)
def _dense(theta: np.ndarray, layer: np.ndarray, a: np.ndarray, out: np.ndarray, places: int) -> None:
    """out (O, P) = activation(W a + b), a (I, P)."""
    num_in, num_out = layer[NUM_IN], layer[NUM_OUT]
    _product(theta, layer[WEIGHT], num_in, 1, layer[BIAS], layer[RELU] != 0, a, num_in, out, num_out, places)


@separate(_NUMBERS, _LAYER, _NUMBERS, _NUMBERS, _NUM)
def _input_gradient(theta: np.ndarray, layer: np.ndarray, g: np.ndarray, out: np.ndarray, places: int) -> None:
    """out (I, P) = W^T g, g (O, P)."""
    num_in, num_out = layer[NUM_IN], layer[NUM_OUT]
    _product(theta, layer[WEIGHT], 1, num_in, -1, False, g, num_out, out, num_in, places)


@separate(_NUMBERS, _NUMBERS, _LAYER, _NUMBERS, _NUM, _NUM)
def _weight_gradient(
    g: np.ndarray, a: np.ndarray, layer: np.ndarray, grad: np.ndarray, places: int, batch: int
) -> None:
    """The weight's part of grad (D): (O, I) = g a, g (O, P), a (B, I) and, below 16 features, as many numbers more."""
    num_in, num_out, weight = layer[NUM_IN], layer[NUM_OUT], layer[WEIGHT]
    wide = num_out >= WEIGHT_ROWS and num_in >= LANES
    o = np.int64(0)
    while o < num_out:  # tiles at the ends compute some numbers again
        o = min(o, num_out - WEIGHT_ROWS) if wide else o
        i = np.int64(0)
        while i < num_in:
            to = weight + o * num_in + i
            if not wide:
                one = zeros(1, 1)
                for b in range(batch):
                    one = add_scaled(one, g, o * places + b, 1, a, b * num_in + i)
                store_first(one, grad, to, num_in - i)
                i += LANES
            elif num_in - i >= WEIGHT_COLUMNS * LANES:
                broad = zeros(WEIGHT_ROWS, WEIGHT_COLUMNS)
                for b in range(batch):
                    broad = add_scaled(broad, g, o * places + b, places, a, b * num_in + i)
                store(broad, grad, to, num_in)
                i += WEIGHT_COLUMNS * LANES
            else:
                i = min(i, num_in - LANES)
                narrow = zeros(WEIGHT_ROWS, 1)
                for b in range(batch):
                    narrow = add_scaled(narrow, g, o * places + b, places, a, b * num_in + i)
                store(narrow, grad, weight + o * num_in + i, num_in)
                i += LANES
        o += WEIGHT_ROWS if wide else 1


@separate(_NUMBERS, _NUM, _NUM, _NUM, _NUMBERS, _NUM)
def transpose(numbers: np.ndarray, stride: int, rows: int, columns: int, out: np.ndarray, step: int) -> None:
    """out (columns, step) from numbers (rows, stride), as many rows and columns as are given.

    Fewer than 16 rows are filled up to 16 with anything where `step` leaves room.
    """
    if columns < LANES or step < LANES:
        for row in range(rows):
            for column in range(columns):
                out[column * step + row] = numbers[row * stride + column]
        return
    for start in range(0, rows, LANES):  # tiles at the ends overlap
        row = max(0, min(start, rows - LANES))
        for first in range(0, columns, LANES):
            column = min(first, columns - LANES)
            transpose_tile(numbers, row * stride + column, stride, rows - 1 - row, out, column * step + row, step)


@separate(_NUMBERS, _NUM, _NUM, _LAYER, types.boolean, _NUMBERS, _NUMBERS)
def _bias(
    g: np.ndarray, places: int, batch: int, layer: np.ndarray, last: bool, grad: np.ndarray, transposed: np.ndarray
) -> None:
    """The bias's part of grad (D): sums over the batch of g (O, P), in the order of torch's of at most 128 numbers.

    last: of the outputs, whose batch is the last axis. That of another layer is not, and torch adds up 32 neighbouring
    sums side by side.
    """
    num, bias = layer[NUM_OUT], layer[BIAS]
    together = 0 if last else num // SUM_COLUMNS * SUM_COLUMNS
    if together:
        transpose(g, places, together, places, transposed, together)
    for o in range(0, together, LANES):
        total = zeros(1, 1)
        for start in range(0, batch, SUM_BLOCK):
            block = zeros(1, 1)
            for b in range(start, min(start + SUM_BLOCK, batch)):
                block = add(block, load(zeros(1, 1), transposed, b * together + o, LANES))
            total = add(total, block)
        store(total, grad, bias + o, LANES)
    for o in range(together, num):
        grad[bias + o] = total_of(g, o * places, batch) if last else interleaved(g, o * places, 1, batch)


@compiled
def _forward(theta: np.ndarray, layers: np.ndarray, inputs: np.ndarray, z: np.ndarray, places: int) -> None:
    """Outputs z (O, P) and, for `backward_dense`, the inputs of all layers.

    Args:
        theta: (D). inputs: (F + H, P), of which the first F rows are given and the others are written.
    """
    theta, layers, inputs, z = borrowed(theta), borrowed(layers), borrowed(inputs), borrowed(z)
    at, last = 0, layers.shape[0] - 1
    for index in range(last + 1):
        num_in, num_out = layers[index, NUM_IN], layers[index, NUM_OUT]
        first, at = at, at + num_in * places
        out = z if index == last else inputs[at : at + num_out * places]
        _dense(theta, layers[index], inputs[first:at], out, places)


@compiled
def _backward(
    theta: np.ndarray,
    layers: np.ndarray,
    inputs: np.ndarray,
    x: np.ndarray,
    g: np.ndarray,
    spare: np.ndarray,
    transposed: np.ndarray,
    grad: np.ndarray,
    places: int,
    batch: int,
) -> None:
    """The layers' part of grad (D), given the gradient g (O, P) at the outputs before a last ReLU.

    Args:
        theta, inputs: as in `forward_dense`. x: (B, F), or empty: then the gradient at the first layer's inputs (F, P)
            is written too, to the front of g. g, spare: buffers for P numbers of every output and, without x, of every
            input. transposed: as much, and 16 numbers more.
    """
    theta, layers, inputs, x, grad = borrowed(theta), borrowed(layers), borrowed(inputs), borrowed(x), borrowed(grad)
    g, spare, transposed = borrowed(g), borrowed(spare), borrowed(transposed)
    at, last = inputs.size, layers.shape[0] - 1
    for index in range(last, -1, -1):
        layer, num_in = layers[index], layers[index, NUM_IN]
        if layer[BIAS] >= 0:
            _bias(g, places, batch, layer, index == last, grad, transposed)
        at -= num_in * places
        values = inputs[at : at + num_in * places]
        if index == 0 and x.size:
            _weight_gradient(g, x, layer, grad, places, batch)
            return
        transpose(values, places, num_in, places, transposed, num_in)
        _weight_gradient(g, transposed, layer, grad, places, batch)
        _input_gradient(theta, layer, g, spare, places)
        if index > 0 and layers[index - 1, RELU]:
            for place in range(0, num_in * places, LANES):
                kept = load(zeros(1, 1), spare, place, LANES)
                positive = positive_or_nan(load(zeros(1, 1), values, place, LANES))
                store(select(positive, kept, zeros(1, 1)), spare, place, LANES)
        g, spare = spare, g
    if layers.shape[0] % 2:
        for place in range(layers[0, NUM_IN] * places):
            spare[place] = g[place]


forward_dense = separate(_NUMBERS, LAYERS, _NUMBERS, _NUMBERS, _NUM)(_forward)
backward_dense = separate(_NUMBERS, LAYERS, *[_NUMBERS] * 6, _NUM, _NUM)(_backward)
