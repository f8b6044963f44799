"""Which chains of layers are small networks: blocks of few channels or none, then dense layers."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from fedcomp.model.batched.backward.dense import DenseLayer, dense_layers
from fedcomp.model.batched.compiled.geometry import Geometry
from fedcomp.model.batched.convolution import Convolution
from fedcomp.model.batched.layers import RELU, Activation, Layer, Pooling
from fedcomp.model.contract import Model
from fedcomp.model.loss import Loss, cross_entropy, squared_error

MOST_PAIRS = 512
"""Pairs of an input and an output channel of a convolution up to which the compiled blocks are used.

Measured at 3x3 and 5x5, batch 64, with max-pooling: they need 1/4 of torch's time for 1 to 8 channels, 1/3 for 8 to 8,
1 to 32 and 1 to 64, 2/3 for 16 to 16 and for 16 to 32, and 4/3 for 32 to 32.
"""
LEAST_ROW = 64
"""Numbers, of all samples, that a row of a convolution holds at least; small batches are filled up."""
MOST_EMPTY = 16
"""Places to which a batch may be filled up."""


@dataclass(frozen=True)
class Block:
    """A convolution of stride 1, ReLU or none, and pooling of windows side by side or none.

    Attributes:
        size: its sizes, with a `margin` and `batch` of 0.
        weight, bias: where they begin in a client's parameters; bias -1: there is none.
    """

    size: Geometry
    weight: int
    bias: int

    @property
    def columns(self) -> int:
        """Width of the convolution's output as far as windows cover it."""
        size = self.size
        return (size.width + 2 * size.pad - size.kernel_w + 1) // size.pool_w * size.pool_w

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the output."""
        size = self.size
        height = (size.height + 2 * size.pad - size.kernel_h + 1) // size.pool_h
        return size.out, height, self.columns // size.pool_w

    def row(self, margin: int) -> tuple[int, ...]:
        """As `blocks_numba.py` takes it, with `margin` rows and columns of zeros around the output."""
        *sizes, _ = self.size._replace(margin=margin)
        return *sizes, self.weight, self.bias


@dataclass(frozen=True)
class SmallNetwork:
    """Blocks, and the dense layers that follow them; a perceptron has no blocks."""

    blocks: tuple[Block, ...]
    denses: tuple[DenseLayer, ...]

    @property
    def smallest_batch(self) -> int:
        """Places that a batch has at least in the blocks."""
        return max((-(-LEAST_ROW // block.columns) for block in self.blocks), default=0)

    def rows(self) -> np.ndarray:
        """The blocks as `network_numba.py` takes them."""
        margins = [*(block.size.pad for block in self.blocks[1:]), 0]
        rows = [block.row(margin) for block, margin in zip(self.blocks, margins)]
        return np.array(rows, np.int64).reshape(-1, len(Geometry._fields) + 1)


def small_network(flat: Model, chain: Sequence[Layer], loss: Loss, input_shape: tuple[int, ...]) -> SmallNetwork | None:
    """The chain as a `SmallNetwork`; None where it is anything else, or too wide or too narrow to gain."""
    if flat.frozen or loss not in (cross_entropy, squared_error) or not has_fused_multiply_add():
        return None
    blocks: list[Block] = []
    shape, rest, used = input_shape, list(chain), 0
    while rest and isinstance(rest[0], Convolution):
        block, length = _block(rest, shape, flat)
        tensors = [place for place in (rest[0].weight, rest[0].bias) if place is not None]
        if block is None or tensors != list(range(used, used + len(tensors))):
            return None
        blocks.append(block)
        rest, used, shape = rest[length:], used + len(tensors), block.shape
    denses = dense_layers(flat, rest, used)
    if denses is None or any(block.size.channels * block.size.out > MOST_PAIRS for block in blocks):
        return None
    small = SmallNetwork(tuple(blocks), denses)
    return small if small.smallest_batch <= MOST_EMPTY else None


def has_fused_multiply_add() -> bool:
    """Whether the processor has the instruction of which the compiled blocks are made; without it they are slow."""
    without = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX")
    return platform.machine() in ("arm64", "aarch64") or not without


def _block(rest: list[Layer], shape: tuple[int, ...], flat: Model) -> tuple[Block | None, int]:
    """The block at the head of `rest` and how many layers it takes; None where a block has no such form."""
    layer = rest[0]
    assert isinstance(layer, Convolution)
    out, _, kernel_h, kernel_w = flat.shapes[layer.weight]
    pads = (0, 0) if layer.padding == "valid" else layer.padding
    if isinstance(pads, str) or (layer.stride, layer.dilation, layer.groups) != ((1, 1), (1, 1), 1):
        return None, 0
    if pads[0] != pads[1] or pads[0] >= min(kernel_h, kernel_w):
        return None, 0
    pool, maximum, relu, length = (1, 1), False, False, 1
    for other in rest[1:3]:
        window = _window(other)
        if isinstance(other, Activation) and other.function in RELU and not relu and (pool == (1, 1) or maximum):
            relu = True  # ReLU of a mean is not the mean of ReLU, and stays for `Stacked`
        elif window is not None and pool == (1, 1):
            pool, maximum = window
        else:
            break
        length += 1
    channels, height, width = shape
    size = Geometry(channels, height, width, pads[0], out, kernel_h, kernel_w, *pool, maximum, relu, 0, 0)
    return Block(size, flat.starts[layer.weight], -1 if layer.bias is None else flat.starts[layer.bias]), length


def _window(layer: Layer) -> tuple[tuple[int, int], bool] | None:
    """Sides of a pooling's window and whether it takes the largest; None for any other than plain ones side by side."""
    if not isinstance(layer, Pooling) or layer.function not in (functional.max_pool2d, functional.avg_pool2d):
        return None
    kernel, stride, padding = (_pair(layer.options[name]) for name in ("kernel_size", "stride", "padding"))
    unusual = layer.options["ceil_mode"] or layer.options.get("divisor_override") is not None
    if stride != kernel or padding != (0, 0) or _pair(layer.options.get("dilation", 1)) != (1, 1) or unusual:
        return None
    return (kernel, layer.function is functional.max_pool2d) if 1 < kernel[0] * kernel[1] <= 16 else None


def _pair(value: object) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    assert isinstance(value, tuple)
    return value[0], value[1]
