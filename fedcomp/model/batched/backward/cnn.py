"""Networks with few channels on a CPU: gradients and local SGD, written by hand and compiled (`cnn_numba.py`).

Everything else (GPUs, other types of numbers, wide layers) is computed by `Stacked`, the slow twin, whose results are
the same but for rounding.

Shape legend: M clients, D parameters, B batch, C, H, W channels, height and width, O outputs.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedcomp.core.step_counts import StepCounts
from fedcomp.model.batched.backward.dense import dense_rows
from fedcomp.model.batched.backward.small_cnn import SmallCnn
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.contract import Gradient, StepDraws, TrainFused
from fedcomp.model.flat import Make
from fedcomp.model.loss import Loss, cross_entropy, exact_mean_loss
from fedcomp.model.tunable import FORMS

EVALUATED_AT_ONCE = 128
"""Samples that stay in the caches."""


class CompiledCnn(Stacked):
    """A `Stacked` model that is a `SmallCnn`: compiled for float32 on a CPU, unless another form was chosen."""

    def __init__(self, module: nn.Module, loss: Loss, small: SmallCnn, make: Make | None = None) -> None:
        """`small`: the module, as `small_cnn` finds it."""
        super().__init__(module, loss, make)
        self.small = small
        self._network = small.rows(), dense_rows(small.denses), small.smallest_batch  # `blocks`, `layers`, `least`

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
        """Gradient of each client's mean loss over its own batch; arguments as in `contract.Model`.

        Raises ValueError: a class that is none of the outputs.
        """
        if not self._compiled(theta):
            return super().gradient(theta, stats, x, y, weight, draws)
        from fedcomp.model.batched.compiled import cnn_numba

        grad, loss = theta.new_empty(theta.shape), theta.new_empty(theta.shape[0])
        real = np.empty((0, 0), np.float32) if weight is None else weight.to(theta.dtype).contiguous().numpy()
        given = theta.contiguous().numpy(), _channels_last(x, theta.dtype), real, *self._targets(y, theta.dtype)
        self._check(cnn_numba.gradient(*given, *self._network, grad.numpy(), loss.numpy()))
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
        outputs = theta.new_empty(*x.shape[:2], self.small.denses[-1].num_out)
        for row, samples, out in zip(theta.contiguous().numpy(), _channels_last(x, theta.dtype), outputs.numpy()):
            self._write_outputs(row, samples, out)
        return exact_mean_loss(self.loss, outputs, y, weight), stats

    def fused_sgd(self, x: Tensor, y: Tensor, batch_size: int) -> TrainFused | None:
        """As `contract.FusesSgd`, on a CPU: images of bytes or float32 [n, H, W, C]."""
        kinds = torch.uint8, torch.float32
        if x.device.type != "cpu" or x.dtype not in kinds or not x.is_contiguous() or not self._has_default_forms():
            return None
        return partial(self._train, x, y)

    @torch.no_grad()
    def _train(
        self,
        x: Tensor,
        y: Tensor,
        theta: Tensor,
        normalisation: tuple[Tensor, Tensor],
        numbers: Tensor,
        counts: StepCounts,
        rate: float,
        decay: float,
    ) -> tuple[Tensor, Tensor]:
        """As `contract.TrainFused`, from the raw images x [n, H, W, C] and their targets y."""
        from fedcomp.model.batched.compiled import cnn_numba

        theta, loss = theta.clone(memory_format=torch.contiguous_format), theta.new_empty(theta.shape[0])
        raw, none = x.flatten(1).numpy(), torch.empty(0, 0)
        images = (raw, none.numpy()) if x.dtype == torch.uint8 else (none.to(torch.uint8).numpy(), raw)
        offset, scale = (part.to(theta.dtype).expand(x.shape[1:]).flatten().numpy() for part in normalisation)
        batches = numbers.contiguous().numpy(), np.ascontiguousarray(counts.of_steps)
        rates = np.float32(rate), np.float32(decay)
        given = theta.numpy(), *images, *self._targets(y, theta.dtype), offset, scale, *batches, *rates
        self._check(cnn_numba.train(*given, *self._network, loss.numpy()))
        return theta, loss

    @torch.no_grad()
    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        """[B, O] outputs of one model (theta [D]) on x [B, ...]."""
        if not self._compiled(theta):
            return super().outputs(theta, stats, x)
        row, found = theta.contiguous().numpy(), theta.new_empty(len(x), self.small.denses[-1].num_out)
        for part, out in zip(x.split(EVALUATED_AT_ONCE), found.split(EVALUATED_AT_ONCE)):
            self._write_outputs(row, _channels_last(part[None], theta.dtype)[0], out.numpy())
        return found

    def _write_outputs(self, theta: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
        """out [B, O] of one model theta [D] on x [B, H * W * C]."""
        from fedcomp.model.batched.compiled import cnn_numba

        cnn_numba.outputs(theta, x, *self._network, out)

    def _compiled(self, theta: Tensor) -> bool:
        plain = type(theta) is Tensor and theta.device.type == "cpu" and theta.dtype == torch.float32
        return plain and self._has_default_forms()

    def _has_default_forms(self) -> bool:
        return all(form == FORMS[0] for form in self.conv_algorithms)

    def _targets(self, y: Tensor, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Classes for cross-entropy and targets for the squared error, of which one is empty."""
        if self.loss is cross_entropy:
            return y.contiguous().numpy(), np.empty((0,) * (y.dim() + 1), np.float32)
        return np.empty((0,) * (y.dim() - 1), np.int64), y.to(dtype).contiguous().numpy()

    def _check(self, classes_are_outputs: bool) -> None:
        if not classes_are_outputs:
            num_out = self.small.denses[-1].num_out
            raise ValueError(f"a sample's class is none of the model's {num_out} outputs, 0 to {num_out - 1}")


def _channels_last(x: Tensor, dtype: torch.dtype) -> np.ndarray:
    """(M, B, H * W * C) of x [M, B, C, H, W]."""
    return x.to(dtype).permute(0, 1, 3, 4, 2).contiguous().flatten(2).numpy()
