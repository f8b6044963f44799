"""Gradients of networks with few channels on a CPU, written out by hand: compiled blocks, then dense layers.

A block is a convolution with its ReLU and pooling, computed by `conv_numba.py`, one client after another; features go
on to the dense layers of `mlp_backward.py`. Everything else (GPUs, other types of numbers, wide layers) is
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

from fedcomp.model.batched.mlp_backward import dense_backward, dense_forward, dense_views, output_gradient
from fedcomp.model.batched.small_cnn import Block, SmallCnn
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.contract import Gradient, StepDraws
from fedcomp.model.flat import Make
from fedcomp.model.loss import Loss, exact_mean_loss
from fedcomp.model.tunable import FORMS

EVALUATED_AT_ONCE = 128
"""Samples that stay in the caches."""


class CompiledCnn(Stacked):
    """A `Stacked` model that is a `SmallCnn`: compiled for float32 on a CPU, unless another form was chosen."""

    def __init__(self, module: nn.Module, loss: Loss, small: SmallCnn, make: Make | None = None) -> None:
        """`small`: the module, as `small_cnn` finds it."""
        super().__init__(module, loss, make)
        self.small = small
        self._steps: dict[int, tuple[_Step, ...]] = {}  # by the places of a batch

    @torch.no_grad()
    def gradient(
        self,
        theta: Tensor,
        stats: Tensor,
        x: Tensor,
        y: Tensor,
        weight: Tensor | None = None,
        draws: StepDraws | None = None,
    ) -> Gradient:
        """Gradient of each client's mean loss over its own batch; arguments as in `contract.Model`."""
        if not self._compiled(theta):
            return super().gradient(theta, stats, x, y, weight, draws)
        if theta.stride(1) != 1:
            theta = theta.contiguous()
        denses, num_samples = self.small.denses, x.shape[1]
        batch = max(num_samples, self.small.smallest_batch)
        passes, features = self._forward_blocks(theta, x, batch)
        views = dense_views(denses, theta)
        values = dense_forward(denses, views, features.view(len(theta), -1, batch)[:, :, :num_samples].mT)
        loss, g_MOB = output_gradient(self.loss, denses[-1].relu, values.pop(), y, weight)
        parts, g_MFB = dense_backward(denses, views, values, g_MOB, for_x=True)
        assert g_MFB is not None
        grad = torch.empty_like(theta)
        torch.cat(parts, 1, out=grad[:, self.dim - sum(part.shape[1] for part in parts) :])
        size = features.shape[1]
        above = torch.zeros(len(theta), size + self._steps[batch][-1].slack)
        above[:, :size].view(len(theta), -1, batch)[:, :, :num_samples] = g_MFB
        for one, row, g in zip(passes, grad.numpy(), above.numpy()):
            one.backward(row, g)
        return Gradient(grad, loss, stats)

    @torch.no_grad()
    def batch_loss(
        self,
        theta: Tensor,
        stats: Tensor,
        x: Tensor,
        y: Tensor,
        weight: Tensor | None = None,
        draws: StepDraws | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Each client's loss without its gradient; as in `contract.Model`."""
        if not self._compiled(theta):
            return super().batch_loss(theta, stats, x, y, weight, draws)
        theta, num_samples = theta.contiguous(), x.shape[1]
        batch = max(num_samples, self.small.smallest_batch)
        _, features = self._forward_blocks(theta, x, batch)
        inputs = features.view(len(theta), -1, batch)[:, :, :num_samples].mT
        z_MOB = dense_forward(self.small.denses, dense_views(self.small.denses, theta), inputs)[-1]
        return exact_mean_loss(self.loss, z_MOB.mT, y, weight), stats

    @torch.no_grad()
    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        """[B, O] outputs of one model (theta [D]) on x [B, ...]."""
        if not self._compiled(theta):
            return super().outputs(theta, stats, x)
        row, parts = theta.contiguous()[None], []
        for part in x.to(theta.dtype).split(EVALUATED_AT_ONCE):
            batch = max(len(part), self.small.smallest_batch)
            _, features = self._forward_blocks(row, part[None], batch)
            inputs = features.view(1, -1, batch)[:, :, : len(part)].mT
            parts.append(dense_forward(self.small.denses, dense_views(self.small.denses, row), inputs)[-1][0].mT)
        return torch.cat(parts)

    def _compiled(self, theta: Tensor) -> bool:
        plain = type(theta) is Tensor and theta.device.type == "cpu" and theta.dtype == torch.float32
        return plain and all(form == FORMS[0] for form in self.conv_algorithms)

    def _forward_blocks(self, theta: Tensor, x: Tensor, batch: int) -> tuple[list[_ClientPass], Tensor]:
        """Each client's pass, and its features [M, F * batch]: x [M, B, C, H, W] in the first of `batch` places."""
        if batch not in self._steps:
            self._steps[batch] = _steps(self.small.blocks, batch)
        samples = x.permute(0, 1, 3, 4, 2).contiguous().view(len(theta), -1).numpy()
        passes = [_ClientPass(self._steps[batch], row, own) for row, own in zip(theta.numpy(), samples)]
        features = [one.features for one in passes]
        return passes, torch.from_numpy(features[0][None] if len(features) == 1 else np.stack(features))


@dataclass(frozen=True)
class _Step:
    """A block for one size of batch: `conv_numba.Geometry`, and how many numbers its arrays hold.

    Attributes:
        slack: further numbers at the end of every array, which a kernel may read.
    """

    size: Any
    weight: slice
    bias: slice | None
    num_packed: int
    num_outputs: int
    num_codes: int
    num_inputs: int
    slack: int


def _steps(blocks: Sequence[Block], batch: int) -> tuple[_Step, ...]:
    from fedcomp.model.batched.conv_numba import SLACK, Geometry, num_codes

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
                SLACK,
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
        held = np.empty(steps[0].num_packed + steps[0].slack, np.float32)
        pack(x, held, steps[0].size)
        self.taken: list[tuple[_Step, np.ndarray, np.ndarray]] = []  # each with its input and codes
        for step in steps:
            out, codes = np.empty(step.num_outputs + step.slack, np.float32), np.empty(step.num_codes, np.uint16)
            bias = np.zeros(step.size.out, np.float32) if step.bias is None else theta[step.bias]
            forward(held, theta[step.weight], bias, out, codes, step.size)
            self.taken.append((step, held, codes))
            held = out
        self.features = held[: -steps[-1].slack]

    def backward(self, grad: np.ndarray, g: np.ndarray) -> None:
        """Write the blocks' part of grad [D], given the gradient at the features [F * places], and slack."""
        from fedcomp.model.batched.conv_backward_numba import backward

        while self.taken:
            step, held, codes = self.taken.pop()
            for_x = np.empty(step.num_inputs + step.slack if self.taken else 0, np.float32)
            bias = np.empty(step.size.out, np.float32) if step.bias is None else grad[step.bias]
            backward(g, codes, held, self.theta[step.weight], grad[step.weight], bias, for_x, step.size)
            g = for_x
