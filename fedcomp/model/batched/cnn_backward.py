"""Gradients of networks with few channels on a CPU, written out by hand: compiled blocks, then dense layers.

A block is a convolution with its ReLU and pooling, computed by `conv_numba.py`, one client after another; features go
on to the dense layers of `mlp_backward.py`. Everything else (GPUs, other types of numbers, wide layers, evaluation) is
computed by `Stacked`, the slow twin, whose results are the same but for rounding.

Shape legend: M clients, D parameters, B batch, C, H, W channels, height and width, F features, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
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

SLACK = 16
"""Numbers after the end of an array that a kernel may read: `conv_numba.SLACK`."""

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
        self._steps: dict[int, tuple[_Step, ...]] = {}  # by the places of a batch

    @torch.no_grad()
    def gradient(self, theta: Tensor, stats: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Gradient:
        """Gradient of each client's mean loss over its own batch; arguments as in `contract.Model`."""
        plain = type(theta) is Tensor and theta.device.type == "cpu" and theta.dtype == torch.float32
        if not plain or any(form != FORMS[0] for form in self.conv_algorithms):
            return super().gradient(theta, stats, x, y, weight)
        if theta.stride(1) != 1:
            theta = theta.contiguous()
        denses, num_samples = self.small.denses, x.shape[1]
        batch = max(num_samples, self.small.smallest_batch)
        if batch not in self._steps:
            self._steps[batch] = _steps(self.small.blocks, batch)
        samples, rows = x.permute(0, 1, 3, 4, 2).contiguous().view(len(theta), -1).numpy(), theta.numpy()
        passes = [_ClientPass(self._steps[batch], row, own) for row, own in zip(rows, samples)]
        features = torch.from_numpy(passes[0].features[None])
        if len(passes) > 1:
            features = torch.from_numpy(np.stack([one.features for one in passes]))
        views = dense_views(denses, theta)
        values = dense_forward(denses, views, features.view(len(theta), -1, batch)[:, :, :num_samples].mT)
        loss, g_MOB = output_gradient(self.loss, denses[-1].relu, values.pop(), y, weight)
        parts, g_MFB = dense_backward(denses, views, values, g_MOB, for_x=True)
        assert g_MFB is not None
        grad = torch.empty_like(theta)
        torch.cat(parts, 1, out=grad[:, self.dim - sum(part.shape[1] for part in parts) :])
        above = torch.zeros(len(theta), features.shape[1] + SLACK)
        above[:, :-SLACK].view(len(theta), -1, batch)[:, :, :num_samples] = g_MFB
        for one, row, g in zip(passes, grad.numpy(), above.numpy()):
            one.backward(row, g)
        return Gradient(grad, loss, stats)


@dataclass(frozen=True)
class _Step:
    """A block for one size of batch: `conv_numba.Geometry`, and how many numbers its arrays hold without slack."""

    size: Any
    weight: slice
    bias: slice | None
    num_packed: int
    num_outputs: int
    num_codes: int
    num_inputs: int


def _steps(blocks: Sequence[Block], batch: int) -> tuple[_Step, ...]:
    from fedcomp.model.batched.conv_numba import Geometry, num_codes

    found = []
    for block, margin in zip(blocks, [*(block.pad for block in blocks[1:]), 0]):
        shape = block.channels, block.height, block.width, block.pad, block.out, *block.kernel
        size = Geometry(*shape, *block.pool, int(block.maximum), int(block.relu), margin, batch)
        high, wide = block.pooled
        found.append(
            _Step(
                size,
                slice(block.weight, block.weight + block.num_weights),
                None if block.bias is None else slice(block.bias, block.bias + block.out),
                block.channels * (block.height + 2 * block.pad) * (block.width + 2 * block.pad) * batch,
                block.out * (high + 2 * margin) * (wide + 2 * margin) * batch,
                block.out * high * wide * num_codes(size),
                block.channels * block.height * block.width * batch,
            )
        )
    return tuple(found)


class _ClientPass:
    """One client's way through the blocks: forwards when it is made, backwards by `backward`.

    Attributes:
        features: [F * places] of the last block; places beyond the batch are empty.
    """

    def __init__(self, steps: Sequence[_Step], theta: np.ndarray, x: np.ndarray) -> None:
        """theta: [D]. x: [B*H*W*C], the channels last."""
        from fedcomp.model.batched.conv_numba import forward, pack

        self.theta = theta
        held = np.empty(steps[0].num_packed + SLACK, np.float32)
        pack(x, held, steps[0].size)
        self.taken: list[tuple[_Step, np.ndarray, np.ndarray]] = []  # each with its input and codes
        for step in steps:
            out, codes = np.empty(step.num_outputs + SLACK, np.float32), np.empty(step.num_codes, np.uint16)
            bias = np.zeros(step.size.out, np.float32) if step.bias is None else theta[step.bias]
            forward(held, theta[step.weight], bias, out, codes, step.size)
            self.taken.append((step, held, codes))
            held = out
        self.features = held[:-SLACK]

    def backward(self, grad: np.ndarray, g: np.ndarray) -> None:
        """Write the blocks' part of grad [D], given the gradient at the features [F * places], and slack."""
        from fedcomp.model.batched.conv_backward_numba import backward

        while self.taken:
            step, held, codes = self.taken.pop()
            for_x = np.empty(step.num_inputs + SLACK if self.taken else 0, np.float32)
            bias = np.empty(step.size.out, np.float32) if step.bias is None else grad[step.bias]
            backward(g, codes, held, self.theta[step.weight], grad[step.weight], bias, for_x, step.size)
            g = for_x


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
