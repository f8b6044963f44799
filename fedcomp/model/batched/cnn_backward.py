"""Gradients of networks with few channels on a CPU, written out by hand: compiled blocks, then dense layers.

A block is a convolution with its ReLU and pooling, computed by `conv_numba.py`, one client after another; features go
on to the dense layers of `mlp_backward.py`. Everything else (GPUs, other types of numbers, wide layers, evaluation) is
computed by `Stacked`, the slow twin, whose results are the same but for rounding.

Shape legend: M clients, D parameters, B batch, C, H, W channels, height and width, F features, O outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.model.batched.convolution import Convolution
from fedcomp.model.batched.layers import Activation, Layer, Pooling
from fedcomp.model.batched.mlp_backward import (
    DenseLayer,
    dense_backward,
    dense_forward,
    dense_layers,
    dense_views,
    output_gradient,
)
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.contract import Gradient
from fedcomp.model.flat import Flat, Make
from fedcomp.model.loss import Loss, cross_entropy, squared_error
from fedcomp.model.tunable import FORMS

MOST_PAIRS = 512
"""Pairs of an input and an output channel of a convolution up to which the compiled blocks are used.

Measured at 3x3 and 5x5, batch 64, with max-pooling: they need 1/4 of torch's time for 1 to 8 channels, 1/3 for 8 to 8,
1 to 32 and 1 to 64, 2/3 for 16 to 16 and for 16 to 32, and 4/3 for 32 to 32.
"""
LEAST_ROW = 64
"""Numbers, of all samples, that a row of a convolution holds at least; small batches are filled up."""
MOST_EMPTY = 16
"""Places to which a batch may be filled up."""

_RELU = (torch.relu, torch.relu_)


@dataclass(frozen=True)
class Block:
    """A convolution of stride 1, then ReLU or none, then pooling of windows side by side or none.

    Attributes:
        weight, bias: where they begin in the row; bias None: there is none.
        channels, height, width, pad: of the input, and the zeros around it.
        out, kernel: of the convolution. pool: of a window, (1, 1) for none.
        maximum: the largest of a window, not its mean. relu: whether there is a ReLU.
    """

    weight: int
    bias: int | None
    channels: int
    height: int
    width: int
    pad: int
    out: int
    kernel: tuple[int, int]
    pool: tuple[int, int] = (1, 1)
    maximum: bool = False
    relu: bool = False

    @property
    def columns(self) -> int:
        """Width of the convolution's output as far as windows cover it."""
        return (self.width + 2 * self.pad - self.kernel[1] + 1) // self.pool[1] * self.pool[1]

    @property
    def pooled(self) -> tuple[int, int]:
        """Height and width of the output."""
        return (self.height + 2 * self.pad - self.kernel[0] + 1) // self.pool[0], self.columns // self.pool[1]

    @property
    def num_weights(self) -> int:
        """Size of the convolution's weight."""
        return self.out * self.channels * self.kernel[0] * self.kernel[1]


@dataclass(frozen=True)
class SmallCnn:
    """Blocks, and the dense layers that follow them."""

    blocks: tuple[Block, ...]
    denses: tuple[DenseLayer, ...]

    @property
    def smallest_batch(self) -> int:
        """Places that a batch has at least."""
        return -(-LEAST_ROW // min(block.columns for block in self.blocks))


class CompiledCnn(Stacked):
    """A `Stacked` model that is a `SmallCnn`: compiled for float32 on a CPU, unless another form was chosen."""

    def __init__(self, module: nn.Module, loss: Loss, small: SmallCnn, make: Make | None = None) -> None:
        """`small`: the module, as `small_cnn` finds it."""
        super().__init__(module, loss, make)
        self.small = small

    @torch.no_grad()
    def gradient(self, theta: Tensor, stats: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Gradient:
        """Gradient of each client's mean loss over its own batch; arguments as in `contract.Model`."""
        plain = type(theta) is Tensor and theta.device.type == "cpu" and theta.dtype == torch.float32
        if not plain or any(form != FORMS[0] for form in self.conv_algorithms):
            return super().gradient(theta, stats, x, y, weight)
        if theta.stride(1) != 1:
            theta = theta.contiguous()
        blocks, denses = self.small.blocks, self.small.denses
        passes = [_ClientPass(blocks, row, batch, self.small.smallest_batch) for row, batch in zip(theta, x)]
        features = torch.stack([one.features for one in passes]) if len(passes) > 1 else passes[0].features[None]
        views = dense_views(denses, theta)
        values = dense_forward(denses, views, features[:, :, : x.shape[1]].mT)
        loss, g_MOB = output_gradient(self.loss, denses[-1].relu, values.pop(), y, weight)
        parts, g_MFB = dense_backward(denses, views, values, g_MOB, for_x=True)
        assert g_MFB is not None
        grad = torch.empty_like(theta)
        start = self.dim - sum(part.shape[1] for part in parts)
        torch.cat(parts, 1, out=grad[:, start:])
        for one, row, g in zip(passes, grad, g_MFB):
            one.backward(row, g)
        return Gradient(grad, loss, stats)


class _ClientPass:
    """One client's way through the blocks: forwards when it is made, backwards by `backward`.

    Attributes:
        features: [F, places] of the last block; places beyond the batch are empty.
    """

    def __init__(self, blocks: Sequence[Block], theta: Tensor, x: Tensor, smallest_batch: int) -> None:
        """theta: [D]. x: [B, C, H, W], free of copies where channels come last in memory."""
        from fedcomp.model.batched import conv_numba as kernels

        self.theta, self.num_samples = theta, x.shape[0]
        self.batch = batch = max(x.shape[0], smallest_batch)
        margins = [*(block.pad for block in blocks[1:]), 0]
        self.steps: list[tuple[Block, Any, Any, Any]] = []  # block, its geometry, input and codes
        sizes = [_geometry(block, margin, batch) for block, margin in zip(blocks, margins)]
        first = blocks[0]
        held = torch.empty(_room(first.channels, first.height, first.width, first.pad, batch))
        kernels.pack(x.permute(0, 2, 3, 1).contiguous().view(-1).numpy(), held.numpy(), sizes[0])
        for block, size, margin in zip(blocks, sizes, margins):
            out = torch.empty(_room(block.out, *block.pooled, margin, batch))
            codes = torch.empty(block.out * math.prod(block.pooled) * kernels.num_codes(size), dtype=torch.uint16)
            kernels.forward(
                held.numpy(),
                _weight(block, theta).numpy(),
                _bias(block, theta).numpy(),
                out.numpy(),
                codes.numpy(),
                size,
            )
            self.steps.append((block, size, held, codes))
            held = out
        self.features = held[: held.numel() - kernels.SLACK].view(-1, batch)

    def backward(self, grad: Tensor, g: Tensor) -> None:
        """Write the blocks' part of grad [D], given the gradient g [F, B] at the features."""
        from fedcomp.model.batched import conv_backward_numba as kernels

        above = torch.zeros(g.shape[0] * self.batch + kernels.SLACK)
        above[: -kernels.SLACK].view(-1, self.batch)[:, : self.num_samples] = g
        for place in range(len(self.steps) - 1, -1, -1):
            block, size, held, codes = self.steps.pop()
            num_inputs = block.channels * block.height * block.width
            for_x = torch.empty(num_inputs * self.batch + kernels.SLACK if place else 0)
            unused = None if block.bias is not None else torch.empty(block.out)
            bias = _bias(block, grad) if unused is None else unused
            kernels.backward(
                above.numpy(),
                codes.numpy(),
                held.numpy(),
                _weight(block, self.theta).numpy(),
                _weight(block, grad).numpy(),
                bias.numpy(),
                for_x.numpy(),
                size,
            )
            above = for_x


def _geometry(block: Block, margin: int, batch: int) -> Any:
    from fedcomp.model.batched.conv_numba import Geometry

    size = block.channels, block.height, block.width, block.pad, block.out, *block.kernel
    return Geometry(*size, *block.pool, int(block.maximum), int(block.relu), margin, batch)


def _room(channels: int, height: int, width: int, margin: int, batch: int) -> int:
    from fedcomp.model.batched.conv_numba import SLACK

    return channels * (height + 2 * margin) * (width + 2 * margin) * batch + SLACK


def _weight(block: Block, row: Tensor) -> Tensor:
    return row[block.weight : block.weight + block.num_weights]


def _bias(block: Block, row: Tensor) -> Tensor:
    return row.new_zeros(block.out) if block.bias is None else row[block.bias : block.bias + block.out]


def small_cnn(flat: Flat, chain: Sequence[Layer], loss: Loss, input_shape: tuple[int, ...]) -> SmallCnn | None:
    """The chain as a `SmallCnn`, or None where it is anything else or its layers are too wide or too narrow to gain."""
    if len(input_shape) != 3 or loss not in (cross_entropy, squared_error):
        return None
    starts = [sum(flat.layers[:place]) for place in range(len(flat.layers))]
    blocks: list[Block] = []
    shape, rest, used = input_shape, list(chain), 0
    while rest and isinstance(rest[0], Convolution):
        block, length = _block(rest, shape, starts, flat.shapes)
        tensors = [place for place in (rest[0].weight, rest[0].bias) if place is not None]
        if block is None or tensors != list(range(used, used + len(tensors))):
            return None
        blocks.append(block)
        rest, used, shape = rest[length:], used + len(tensors), (block.out, *block.pooled)
    denses = dense_layers(flat, rest, used)
    if not blocks or denses is None or any(block.channels * block.out > MOST_PAIRS for block in blocks):
        return None
    small = SmallCnn(tuple(blocks), denses)
    return small if small.smallest_batch <= MOST_EMPTY else None


def _block(
    rest: list[Layer], shape: tuple[int, ...], starts: list[int], shapes: Sequence[torch.Size]
) -> tuple[Block | None, int]:
    """The block at the head of `rest` and how many layers it takes; None where a block has no such form."""
    layer = rest[0]
    assert isinstance(layer, Convolution)
    out, _, kernel_h, kernel_w = shapes[layer.weight]
    pad = 0 if layer.padding == "valid" else layer.padding
    if isinstance(pad, str) or (layer.stride, layer.dilation, layer.groups) != ((1, 1), (1, 1), 1):
        return None, 0
    pads = (pad, pad) if isinstance(pad, int) else pad
    if pads[0] != pads[1] or pads[0] >= min(kernel_h, kernel_w):
        return None, 0
    pool, maximum, relu, length = (1, 1), False, False, 1
    for other in rest[1:3]:
        window = _window(other)
        if isinstance(other, Activation) and other.function in _RELU and not relu and (pool == (1, 1) or maximum):
            relu = True  # ReLU of a mean is not the mean of ReLU, and stays for `Stacked`
        elif window is not None and pool == (1, 1):
            pool, maximum = window
        else:
            break
        length += 1
    bias = None if layer.bias is None else starts[layer.bias]
    channels, height, width = shape
    kernel, weight = (kernel_h, kernel_w), starts[layer.weight]
    return Block(weight, bias, channels, height, width, pads[0], out, kernel, pool, maximum, relu), length


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
