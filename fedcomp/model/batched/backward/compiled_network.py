"""Small networks on a CPU: gradients and local SGD, written by hand and compiled (`network_numba.py`).

Everything else (GPUs, other types of numbers) is computed by `Stacked` or `Perceptron`, the slow twins, whose results
are the same but for rounding.

Shape legend: M clients, D parameters, B batch, C, H, W channels, height and width, F features, X values of a sample,
O outputs.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedcomp.core.accelerated import Form, plainly
from fedcomp.model.batched.backward.dense import dense_rows
from fedcomp.model.batched.backward.mlp import Perceptron
from fedcomp.model.batched.backward.small_network import SmallNetwork
from fedcomp.model.batched.convolution import TRIAL, like_samples
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.contract import Batch, Gradient, SgdSteps, StepDraws, TrainFused
from fedcomp.model.flat import Make
from fedcomp.model.loss import Loss, cross_entropy, exact_mean_loss
from fedcomp.model.tunable import FORMS

COMPILED = Form("compiled networks", "tensor operations")
TOLERANCE = 1e-3
"""As a share of the norm: where rounding brings a sum to the other side of zero, a ReLU turns on or off."""
APART = 2e-2
"""By how much the parameters of a trial are moved, as a share of their root mean square."""
EVALUATED_AT_ONCE = 128
"""Samples that stay in the caches."""
NOWHERE = np.zeros(2, np.int64)
"""Instead of the addresses of the blocks' code, where there are no blocks."""


class CompiledNetwork(Stacked):
    """A model that is a `SmallNetwork`: compiled for float32 on a CPU, unless another form was chosen."""

    def __init__(self, module: nn.Module, loss: Loss, small: SmallNetwork, make: Make | None = None) -> None:
        """`small`: the module, as `small_network` finds it."""
        super().__init__(module, loss, make)
        self.small = small
        self._blocks, self._layers = small.rows(), dense_rows(small.denses)

    @property
    def _network(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """`blocks`, `addresses`, `layers` and `least` as `network_numba.py` takes them; addresses: of this process."""
        addresses = NOWHERE
        if self.small.blocks:
            from fedcomp.model.batched.compiled import blocks_numba

            addresses = blocks_numba.ADDRESSES
        return self._blocks, addresses, self._layers, self.small.smallest_batch

    @torch.no_grad()
    def gradient(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> Gradient:
        """As `contract.Model`. Raises ValueError: a class that is none of the outputs."""
        if not self._compiled(theta):
            try:
                return super().gradient(theta, batch, draws)
            except (IndexError, RuntimeError):  # of a class that is none of the outputs, in torch's words
                y = batch.y
                on_cpu = y.device.type == "cpu" and self.loss is cross_entropy
                self._check(not on_cpu or bool(((y >= 0) & (y < self.small.denses[-1].num_out)).all()))
                raise
        found = self._compiled_gradient(theta, batch)

        def compiled() -> tuple[Tensor, ...]:
            tried = self._compiled_gradient(without_ties(theta), batch)
            return tried.grad, tried.loss

        def plain() -> tuple[Tensor, ...]:
            with plainly():
                expected = self.gradient(without_ties(theta), batch, draws)
            return expected.grad, expected.loss

        agrees = COMPILED.agrees("gradients", compiled, plain, TOLERANCE)
        return found if agrees else self.gradient(theta, batch, draws)

    def _compiled_gradient(self, theta: Tensor, batch: Batch) -> Gradient:
        from fedcomp.model.batched.compiled import network_numba

        grad, loss, weight = theta.new_empty(theta.shape), theta.new_empty(theta.shape[0]), batch.weight
        real = np.empty((0, 0), np.float32) if weight is None else weight.to(theta.dtype).contiguous().numpy()
        samples, targets = self._samples(batch.x, theta.dtype), self._targets(batch.y, theta.dtype)
        given = theta.contiguous().numpy(), samples, real, *targets
        self._check(network_numba.gradient(*given, *self._network, grad.numpy(), loss.numpy()))
        return Gradient(grad, loss, batch.stats)

    @torch.no_grad()
    def batch_loss(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> tuple[Tensor, Tensor]:
        if not self._compiled(theta):
            return super().batch_loss(theta, batch, draws)
        x = batch.x
        outputs = theta.new_empty(*x.shape[:2], self.small.denses[-1].num_out)
        samples = self._samples(x if x.stride(0) else x[:1], theta.dtype)  # models of one client share theirs
        for row, one in enumerate(theta.contiguous().numpy()):
            self._write_outputs(one, samples[min(row, len(samples) - 1)], outputs[row].numpy())
        return exact_mean_loss(self.loss, outputs, batch.y, batch.weight), batch.stats

    def fused_sgd(self, x: Tensor, y: Tensor) -> TrainFused | None:
        """As `contract.Model`, of bytes or float32 [n, F] or [n, H, W, C]."""
        plain = x.dtype in (torch.uint8, torch.float32) and x.is_contiguous() and self._has_default_forms()
        in_order = len(self.small.blocks) > 0 or x.dim() == 2 or x.shape[-1] == 1  # a weight's: channels first
        return partial(self._train, x, y) if plain and in_order else None

    @torch.no_grad()
    def _train(self, x: Tensor, y: Tensor, steps: SgdSteps) -> tuple[Tensor, Tensor]:
        """As `contract.TrainFused`, from the raw samples x [n, F] or [n, H, W, C] and their targets y."""
        from fedcomp.model.batched.compiled import network_numba

        theta = steps.theta.clone(memory_format=torch.contiguous_format)
        loss = theta.new_empty(theta.shape[0])
        raw, none = x.flatten(1).numpy(), torch.empty(0, 0)
        images = (raw, none.numpy()) if x.dtype == torch.uint8 else (none.to(torch.uint8).numpy(), raw)
        offset, scale = (part.to(theta.dtype).expand(x.shape[1:]).flatten().numpy() for part in steps.normalisation)
        batches = steps.sample_indices.contiguous().numpy(), np.ascontiguousarray(steps.counts.of_steps)
        rates = np.float32(steps.rate), np.float32(steps.decay)
        given = theta.numpy(), *images, *self._targets(y, theta.dtype), offset, scale, *batches, *rates
        self._check(network_numba.train(*given, *self._network, loss.numpy()))
        return theta, loss

    @torch.no_grad()
    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        if not self._compiled(theta):
            return super().outputs(theta, stats, x)
        found = theta.new_empty(len(x), self.small.denses[-1].num_out)
        self._write_outputs(theta.contiguous().numpy(), self._samples(x[None], theta.dtype)[0], found.numpy())

        def plain() -> tuple[Tensor]:
            with plainly():
                return (self.outputs(theta, stats, x),)

        agrees = COMPILED.agrees("outputs", lambda: (found,), plain, TOLERANCE)
        return found if agrees else self.outputs(theta, stats, x)

    def outputs_at_once(self, theta: Tensor) -> int | None:
        return EVALUATED_AT_ONCE if self._compiled(theta) else None

    def goes_through_models(self, theta: Tensor) -> bool:
        return self._compiled(theta)

    def _write_outputs(self, theta: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
        """out [B, O] of one model theta [D] on the samples x [B, X]."""
        from fedcomp.model.batched.compiled import network_numba

        network_numba.outputs(theta, x, *self._network, out)

    def _samples(self, x: Tensor, dtype: torch.dtype) -> np.ndarray:
        """(M, B, X) of x [M, B, F] or [M, B, C, H, W]: channels last for blocks, as the row has them for layers."""
        x = x.to(dtype).movedim(2, -1) if self.small.blocks else x.to(dtype)
        return x.flatten(2).contiguous().numpy()

    def _compiled(self, theta: Tensor) -> bool:
        plain = type(theta) is Tensor and theta.device.type == "cpu" and theta.dtype == torch.float32
        return plain and self._has_default_forms() and not COMPILED.refused

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


class CompiledPerceptron(CompiledNetwork, Perceptron):
    """A `CompiledNetwork` without convolutions: what is not compiled is computed by `Perceptron`."""

    @torch.no_grad()
    def outputs_of_rows(self, theta: Tensor, x: Tensor) -> Tensor:
        """[M, B, O] outputs of each row of theta [M, D] on x [B, ...]."""
        if not self._compiled(theta):
            return super().outputs_of_rows(theta, x)
        parts = x.split(EVALUATED_AT_ONCE)
        return torch.stack([torch.cat([self.outputs(row, row[:0], part) for part in parts]) for row in theta])


def without_ties(theta: Tensor) -> Tensor:
    """Parameters [M, D] near these, at which rounding decides of hardly any ReLU.

    Masks over weights of one magnitude, as FedPM's and BiCompFL's, make many sums exactly zero: in two orders of a sum
    some end above it and some below, and gradients differ by per cents though both forms are right.
    """
    size = theta.square().mean(1, keepdim=True).sqrt()
    return theta + APART * size * like_samples(TRIAL.fold_in("parameters"), theta)
