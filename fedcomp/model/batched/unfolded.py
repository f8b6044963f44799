"""Convolutions of M clients as batched matrix products over patches, forwards and backwards.

A weight's gradient is a product of few rows and columns over B*L patches, which on a GPU one block of threads a client
would add up alone: patches are cut into pieces, and their sums are added. Columns and outputs lie channels last, so
nothing but patches is copied.

Shape legend: M clients, B batch, C channels, O output channels, H height, W width, k a side of the kernel, L patches of
a sample, K values of a patch, G = M times the convolution's own groups.
"""

from collections.abc import Sequence
from functools import cache
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = 32
"""A side of the part of a product that a block of threads computes."""
WANTED = 64
"""Blocks of threads a client that a weight's gradient is cut into, at least: ten clients then fill a GPU."""

Options = tuple[tuple[int, ...], tuple[int, ...], int]
"""Stride, dilation and groups of a convolution."""


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, options: Options) -> Tensor:
    """(B, M*O, H', W'), channels last, from x (B, M*C, H, W) with margins, weight (M, O, C, k, k) and bias (M, O)."""
    return _Unfolded.apply(x, weight, bias, options)


class _Unfolded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, options: Options) -> Tensor:
        stride, dilation, own_groups = options
        groups, kernel = len(weight) * own_groups, weight.shape[3:]
        patches = patches_of(x, kernel, dilation, stride, groups)  # [G, B, H', W', k, k, C]
        _, batch, height, width = patches.shape[:4]
        columns = patches.reshape(groups, batch * height * width, -1)  # [G, B*L, K]
        rows = weight.movedim(2, -1).reshape(groups, -1, columns.shape[2])  # [G, O, K]
        sizes = batch, groups * rows.shape[1], height, width
        y = torch.empty(sizes, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        out = y.permute(0, 2, 3, 1).view(columns.shape[1], groups, -1).transpose(0, 1)  # [G, B*L, O]
        if bias is None:
            torch.bmm(columns, rows.mT, out=out)
        else:
            torch.baddbmm(bias.reshape(groups, 1, -1), columns, rows.mT, out=out)
        ctx.save_for_backward(columns, rows)
        ctx.shapes = x.shape, weight.shape, patches.shape, None if bias is None else bias.shape
        ctx.options = options
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        columns, rows = ctx.saved_tensors
        x_shape, weight_shape, patches_shape, bias_shape = ctx.shapes
        groups, num_patches, num_values = columns.shape
        above = gradient.permute(0, 2, 3, 1).reshape(num_patches, groups, -1)
        above = above.transpose(0, 1).contiguous()  # [G, B*L, O]
        for_x = for_weight = for_bias = None
        if ctx.needs_input_grad[0]:
            for_x = folded(torch.bmm(above, rows).view(patches_shape), x_shape, ctx.options)
        if ctx.needs_input_grad[1]:
            num = pieces(num_patches, rows.shape[1], num_values)
            left, right = (part.reshape(groups * num, num_patches // num, -1) for part in (above, columns))
            sums = torch.bmm(left.mT, right).view(groups, num, *rows.shape[1:]).sum(1)
            kernel_last = (*weight_shape[:2], *weight_shape[3:], weight_shape[2])
            for_weight = sums.view(kernel_last).movedim(-1, 2)
        if bias_shape is not None and ctx.needs_input_grad[2]:
            for_bias = above.sum(1).view(bias_shape)
        return for_x, for_weight, for_bias, None


def patches_of(x: Tensor, kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int], groups: int) -> Tensor:
    """[G, B, H', W', k, k, C] the patches of x [B, G*C, H, W], as a view."""
    patches = x
    for dim, side, step, apart in zip((2, 3), kernel, dilation, stride, strict=True):
        patches = patches.unfold(dim, step * (side - 1) + 1, apart)  # [B, G*C, H', W', k, k] in the end
    patches = patches[..., :: dilation[0], :: dilation[1]].unflatten(1, (groups, -1))
    return patches.permute(1, 0, 3, 4, 5, 6, 2)


def folded(patches: Tensor, shape: Sequence[int], options: Options) -> Tensor:
    """[B, G*C, H, W], channels last, the sum of all patches [G, B, H', W', k, k, C] where they were taken."""
    stride, dilation, _ = options
    groups, batch, rows, _, side, _, channels = patches.shape
    height, width = shape[2:]
    windows = _apart(patches.permute(1, 2, 4, 3, 0, 6, 5), dilation[1])  # [B, H', k, W', G, C, k]
    sizes = [batch, rows, side, width, groups, channels]
    wide = torch.ops.aten.unfold_backward(windows, sizes, 3, windows.shape[-1], stride[1])
    windows = _apart(wide.permute(0, 1, 3, 4, 5, 2), dilation[0])  # [B, H', W, G, C, k]
    sizes = [batch, height, width, groups, channels]
    whole = torch.ops.aten.unfold_backward(windows, sizes, 1, windows.shape[-1], stride[0])
    return whole.flatten(3).permute(0, 3, 1, 2)


def _apart(windows: Tensor, dilation: int) -> Tensor:
    """Windows [..., k] with zeros between the values of a dilated kernel."""
    if dilation == 1:
        return windows
    wide = windows.new_zeros(*windows.shape[:-1], dilation * (windows.shape[-1] - 1) + 1)
    wide[..., ::dilation] = windows
    return wide


@cache
def pieces(num_patches: int, num_rows: int, num_values: int) -> int:
    """Into how many pieces a client's patches are cut: a divisor of their number, for WANTED blocks if there is one.

    Whatever the number of clients is, so that a client's gradient does not depend on it.
    """
    wanted = ceil(WANTED / prod(ceil(size / TILE) for size in (num_rows, num_values)))
    return next((num for num in range(wanted, num_patches // TILE + 1) if num_patches % num == 0), 1)
