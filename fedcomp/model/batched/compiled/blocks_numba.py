"""The convolutional blocks of a network, one after another, forwards and backwards; one client a call.

Networks call them by address (`ADDRESSES`): a perceptron has no blocks, and does not wait until they are compiled.

A row of `blocks`, int64, is a `Geometry` without `batch`, then where weight and bias begin in a client's parameters
(bias -1: none). Shape legend as in `network_numba.py`.
"""

from typing import Any

import numpy as np

from fedcomp.model.batched.compiled.conv_backward_numba import backward_block
from fedcomp.model.batched.compiled.conv_numba import SLACK, forward_block, num_masks, pack, pooled
from fedcomp.model.batched.compiled.geometry import Geometry
from fedcomp.model.batched.compiled.network_numba import BLOCKS_BACKWARD, BLOCKS_FORWARD
from fedcomp.model.batched.compiled.tile_numba import fixed
from fedcomp.random.numba_jit import address_of, compiled

NUM_SIZES = len(Geometry._fields) - 1
BLOCK_WEIGHT, BLOCK_BIAS = NUM_SIZES, NUM_SIZES + 1
"""Columns of `blocks`: those behind its sizes."""


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
    theta: np.ndarray, x: np.ndarray, real: np.ndarray, blocks: np.ndarray, batch: int
) -> tuple[np.ndarray, np.ndarray]:
    """The blocks' values of one client's samples x[real] (B, X).

    Returns:
        The inputs of all blocks one after another and then the features (F, batch), all with slack. The masks.
    """
    last, num, num_of_masks = blocks.shape[0] - 1, 0, 0
    for k in range(last + 1):
        size = _geometry(blocks[k], batch)
        num, num_of_masks = num + _num_inputs(size), num_of_masks + _num_masks(size)
    height, width = pooled(size)
    num += size.out * height * width * batch + SLACK
    inputs, masks = np.empty(num, np.float32), np.empty(num_of_masks, np.uint16)
    pack(x, real, inputs, _geometry(blocks[0], batch))
    at, mask = 0, 0
    for k in range(last + 1):
        size = _geometry(blocks[k], batch)
        end, end_of_masks = at + _num_inputs(size), mask + _num_masks(size)
        after = num if k == last else end + _num_inputs(_geometry(blocks[k + 1], batch))
        bias = np.empty(size.out, np.float32)
        for c in range(size.out):
            bias[c] = theta[blocks[k, BLOCK_BIAS] + c] if blocks[k, BLOCK_BIAS] >= 0 else np.float32(0)
        weight, out = _weight(theta, blocks[k], size), inputs[end:after]
        forward_block(inputs[at:end], weight, bias, out, masks[mask:end_of_masks], size)
        at, mask = end, end_of_masks
    return inputs, masks


@compiled
def _backward(
    theta: np.ndarray,
    blocks: np.ndarray,
    batch: int,
    inputs: np.ndarray,
    masks: np.ndarray,
    above: np.ndarray,
    grad: np.ndarray,
) -> None:
    """The blocks' part of grad (D), given the gradient `above` (F, batch), with slack, at the features.

    inputs, masks: as `_forward` returned them.
    """
    at, mask = inputs.size - above.size, masks.size
    for k in range(blocks.shape[0] - 1, -1, -1):
        size = _geometry(blocks[k], batch)
        end, end_of_masks = at, mask
        at, mask = at - _num_inputs(size), mask - _num_masks(size)
        grad_bias = np.empty(size.out, np.float32)
        if blocks[k, BLOCK_BIAS] >= 0:
            grad_bias = grad[blocks[k, BLOCK_BIAS] : blocks[k, BLOCK_BIAS] + size.out]
        grad_x = np.empty(size.channels * size.height * size.width * batch + SLACK if k else 0, np.float32)
        weights = _weight(theta, blocks[k], size), _weight(grad, blocks[k], size)
        backward_block(above, masks[mask:end_of_masks], inputs[at:end], *weights, grad_bias, grad_x, size)
        above = grad_x


ADDRESSES = np.array([address_of(_forward, BLOCKS_FORWARD), address_of(_backward, BLOCKS_BACKWARD)])
"""As `network_numba.py` takes them."""
