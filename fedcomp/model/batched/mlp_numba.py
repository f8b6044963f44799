"""Small dense layers of M perceptrons, forwards and backwards, compiled for a CPU; one client after another.

Forwards and for the gradient at the input of a layer, the batch is the innermost axis, filled up to whole vectors; for
the gradient of a weight it is the input's features. Tiles of results stay in registers.

Every number of a matrix product is one chain of fused multiply-adds over the summed axis, in its order, that starts at
0; a bias is added afterwards. Sums over the batch have the order of torch's. So every processor computes the same bits,
whatever its vectors hold, and those of the tensor code in `mlp_backward.py` wherever torch's products are such chains:
those of MKL are, with AVX-512 and the sizes that `mlp_backward.small_layers` allows.

Arrays are contiguous float32. `layers` is int64, one row a layer: numbers of inputs I and outputs O, where weight
[O, I] and bias [O] begin in a client's parameters (bias -1: none), and 1 where ReLU follows.

Shape legend: M clients, D parameters, B batch, P places: B filled up to vectors, F features of the input, H outputs of
all layers but the last.
"""

from __future__ import annotations

import numpy as np

from fedcomp.model.batched.tile_numba import LANES, add_scaled, add_scaled_by_rows, store, zeros
from fedcomp.random.numba_jit import compiled

SUM_LANES, SUM_COLUMNS, SUM_BLOCK = 8, 32, 16
"""Of torch's sums: neighbours along the axis that are added to 8 sums; neighbouring sums that go side by side; numbers
added up before they join the rest."""


@compiled
def forward(theta: np.ndarray, x: np.ndarray, layers: np.ndarray, held: np.ndarray, z: np.ndarray) -> None:
    """Outputs of all clients, z (M, O, B), and for `backward` the values of the other layers, held (M, H, P).

    theta: (M, D). x: (M, B, F). Places beyond the batch hold anything.
    """
    (num_clients, num_outputs, batch), places = z.shape, held.shape[2]
    inputs, out = np.zeros((x.shape[2], places), np.float32), np.empty((1, num_outputs, places), np.float32)
    last = layers.shape[0] - 1
    for m in range(num_clients):
        for b in range(batch):
            for f in range(x.shape[2]):
                inputs[f, b] = x[m, b, f]
        if last == 0:
            _dense(theta, m, layers, 0, inputs, 0, out, 0, 0)
        else:
            _dense(theta, m, layers, 0, inputs, 0, held, m, 0)
        first = 0  # of the rows of `held` that a layer writes
        for index in range(1, last + 1):
            below = (m * held.shape[1] + first) * places
            first += layers[index, 0]
            if index == last:
                _dense(theta, m, layers, index, held, below, out, 0, 0)
            else:
                _dense(theta, m, layers, index, held, below, held, m, first)
        for o in range(num_outputs):
            for b in range(batch):
                z[m, o, b] = out[0, o, b]


@compiled
def _dense(
    theta: np.ndarray,
    m: int,
    layers: np.ndarray,
    index: int,
    a: np.ndarray,
    at: int,
    out: np.ndarray,
    row: int,
    first: int,
) -> None:
    """out[row, first:] (O, P) = activation(W a + b), a (I, P) from place `at` of its array on."""
    num_in, num_out, bias, relu = layers[index, 0], layers[index, 1], layers[index, 3], layers[index, 4]
    weight, places = m * theta.shape[1] + layers[index, 2], out.shape[2]
    to = (row * out.shape[1] + first) * places
    for p in range(0, places, LANES):
        o = np.int64(0)
        while o < num_out:
            if num_out - o >= 8:
                most = zeros(8, 1)
                for i in range(num_in):
                    most = add_scaled_by_rows(most, theta, weight + o * num_in + i, num_in, a, at + i * places + p)
                store(most, out, to + o * places + p, places)
                o += 8
            else:  # the last rows may be computed again
                o = min(o, num_out - 2)
                some = zeros(2, 1)
                for i in range(num_in):
                    some = add_scaled_by_rows(some, theta, weight + o * num_in + i, num_in, a, at + i * places + p)
                store(some, out, to + o * places + p, places)
                o += 2
    for output in range(num_out):
        numbers = out[row, first + output]
        if bias >= 0:
            offset = theta[m, bias + output]
            for p in range(places):
                numbers[p] += offset
        if relu:
            for p in range(places):
                numbers[p] = np.float32(0) if numbers[p] <= 0 else numbers[p]


@compiled
def cross_entropy(log_p: np.ndarray, p: np.ndarray, y: np.ndarray, loss: np.ndarray) -> None:
    """loss (M), each client's mean over its batch; its gradient at the outputs takes the place of p (M, O, B).

    log_p: (M, O, B) log softmax of the outputs. p: its exponential. y: (M, B) int64 classes.
    """
    num_clients, num_outputs, batch = p.shape
    share, picked = np.float32(1.0 / batch), np.empty((1, batch), np.float32)
    for m in range(num_clients):
        for b in range(batch):
            picked[0, b] = log_p[m, y[m, b], b]
            p[m, y[m, b], b] += np.float32(-1)
        loss[m] = _total_of_row(picked, 0, batch) * -share
        for o in range(num_outputs):
            for b in range(batch):
                p[m, o, b] *= share


@compiled
def backward(
    theta: np.ndarray, x: np.ndarray, layers: np.ndarray, held: np.ndarray, g: np.ndarray, grad: np.ndarray
) -> None:
    """grad (M, D) of all clients, given the gradient g (M, O, B) at the outputs before a last ReLU.

    theta, x, held: as in `forward`.
    """
    (num_clients, num_outputs, batch), places = g.shape, held.shape[2]
    widest, last = layers[:, 1].max(), layers.shape[0] - 1
    above, below = np.zeros((widest, places), np.float32), np.empty((widest, places), np.float32)
    values = np.empty(widest * batch, np.float32)
    for m in range(num_clients):
        for o in range(num_outputs):
            for b in range(batch):
                above[o, b] = g[m, o, b]
        first = held.shape[1]
        for index in range(last, -1, -1):
            num_in, bias = layers[index, 0], layers[index, 3]
            if bias >= 0:
                _bias(above, batch, index == last, grad[m, bias : bias + layers[index, 1]])
            if index == 0:
                _weights(above, x, m * batch * num_in, batch, layers, 0, grad, m)
                break
            first -= num_in
            hidden = held[m, first : first + num_in]
            features = values[: batch * num_in].reshape(batch, num_in)
            for i in range(num_in):
                for b in range(batch):
                    features[b, i] = hidden[i, b]
            _weights(above, values, 0, batch, layers, index, grad, m)
            _inputs(above, theta, m, layers, index, below)
            if layers[index - 1, 4]:
                for i in range(num_in):
                    for p in range(places):
                        below[i, p] = np.float32(0) if hidden[i, p] <= 0 else below[i, p]
            above, below = below, above


@compiled
def _weights(
    g: np.ndarray, a: np.ndarray, at: int, batch: int, layers: np.ndarray, index: int, grad: np.ndarray, m: int
) -> None:
    """The weight's part of grad[m], (O, I) = g a, g (O, P), a (B, I) from place `at` of its array on."""
    num_in, num_out, places = layers[index, 0], layers[index, 1], g.shape[1]
    to = m * grad.shape[1] + layers[index, 2]
    for start in range(0, num_out, 4):  # tiles at the ends compute some numbers again
        o = min(start, num_out - 4)
        i = np.int64(0)
        while i < num_in:
            if num_in - i >= 4 * LANES:
                wide = zeros(4, 4)
                for b in range(batch):
                    wide = add_scaled_by_rows(wide, g, o * places + b, places, a, at + b * num_in + i)
                store(wide, grad, to + o * num_in + i, num_in)
                i += 4 * LANES
            else:
                i = min(i, num_in - LANES)
                narrow = zeros(4, 1)
                for b in range(batch):
                    narrow = add_scaled_by_rows(narrow, g, o * places + b, places, a, at + b * num_in + i)
                store(narrow, grad, to + o * num_in + i, num_in)
                i += LANES


@compiled
def _inputs(g: np.ndarray, theta: np.ndarray, m: int, layers: np.ndarray, index: int, out: np.ndarray) -> None:
    """out (I, P) = W^T g, g (O, P)."""
    num_in, num_out, places = layers[index, 0], layers[index, 1], g.shape[1]
    weight = m * theta.shape[1] + layers[index, 2]
    for start in range(0, num_in, 8):
        i = min(start, num_in - 8)
        for p in range(0, places, LANES):
            tile = zeros(8, 1)
            for o in range(num_out):
                tile = add_scaled(tile, theta, weight + o * num_in + i, g, o * places + p)
            store(tile, out, i * places + p, places)


@compiled
def _bias(g: np.ndarray, batch: int, last: bool, out: np.ndarray) -> None:
    """out (O): sums over the batch of g (O, P), at most 128 numbers each, in the order of torch's sums.

    last: of the outputs, whose batch is the last axis. That of another layer is not, and torch adds up 32 neighbouring
    sums side by side.
    """
    together = 0 if last else out.size // SUM_COLUMNS * SUM_COLUMNS
    for o in range(together):
        total = np.float32(0)
        for start in range(0, batch, SUM_BLOCK):
            block = np.float32(0)
            for b in range(start, min(start + SUM_BLOCK, batch)):
                block += g[o, b]
            total += block
        out[o] = total
    for o in range(together, out.size):
        out[o] = _total_of_row(g, o, batch) if last else _interleaved(g, o, 0, 1, batch)


@compiled
def _total_of_row(numbers: np.ndarray, row: int, num: int) -> np.float32:
    """The sum of numbers[row, :num] in the order of torch's sums over the last axis."""
    whole = num // SUM_LANES
    if not whole:
        return _interleaved(numbers, row, 0, 1, num)
    total = np.float32(0)
    for b in range(whole * SUM_LANES, num):
        total += numbers[row, b]
    for lane in range(SUM_LANES):
        if whole >= 4:
            total += _interleaved(numbers, row, lane, SUM_LANES, whole)
        else:
            column = np.float32(0)
            for vector in range(whole):
                column += numbers[row, lane + vector * SUM_LANES]
            total += column
    return total


@compiled
def _interleaved(numbers: np.ndarray, row: int, start: int, stride: int, num: int) -> np.float32:
    """The sum of every `stride`-th number as four sums, of those 0, 1, 2 and 3 modulo 4, which are then added up."""
    total = np.float32(0)
    for part in range(4):
        whole = block = np.float32(0)
        for group in range(num // 4):
            block += numbers[row, start + (4 * group + part) * stride]
            if group % SUM_BLOCK == SUM_BLOCK - 1:
                whole += block
                block = np.float32(0)
        block += whole
        if part == 0:
            for tail in range(num // 4 * 4, num):
                block += numbers[row, start + tail * stride]
        total = block if part == 0 else total + block
    return total
