"""Gradients of M clients by one pass through stacked layers: the path of every chain of known layers.

Shape legend: M clients, D parameters, C running statistics or channels, B batch, O outputs, H height, W width.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedcomp.model.batched.batch_norm import BatchNorm
from fedcomp.model.batched.convolution import TRIAL, Convolution, like_samples
from fedcomp.model.batched.dropout import Dropout
from fedcomp.model.batched.layers import Layer, Linear, Pass, stack_images
from fedcomp.model.batched.translate import translate
from fedcomp.model.contract import Batch, Gradient, Model, StepDraws
from fedcomp.model.flat import Make
from fedcomp.model.loss import Loss, exact_mean_loss, mean_loss, squared_error
from fedcomp.model.precision import product_type
from fedcomp.model.tunable import TunableOperation, Workload


class Stacked(Model):
    """A model whose M clients run as one: grouped convolutions, batched matrix products, BatchNorm over M*C channels.

    Computes in the dtype of `theta`, but for products of a lower `precision`. Call it under `torch.no_grad()` or none,
    not under `torch.inference_mode()`.
    """

    loss: Loss

    def __init__(self, module: nn.Module, loss: Loss, make: Make | None = None, precision: str = "fp32") -> None:
        """ValueError if `module` is no chain of known layers (`translate`), or for an unknown precision."""
        super().__init__(module, make)
        chain = translate(module)
        if chain is None:
            raise ValueError(f"{type(module).__name__} has parts without a stacked form; use Functional")
        self.loss = loss
        self.chain: list[Layer] = chain
        self.products = product_type(precision)
        self.draws_in_training = any(isinstance(layer, Dropout) for layer in chain)

    @property
    def convolutions(self) -> list[Convolution]:
        """The chain's trained convolutions, in order."""
        return [layer for layer in self.chain if isinstance(layer, Convolution) and not layer.frozen]

    @property
    def conv_algorithms(self) -> tuple[str, ...]:
        """The form of each convolution."""
        return tuple(layer.form for layer in self.convolutions)

    def set_conv_algorithms(self, forms: Sequence[str]) -> None:
        """Compute the convolutions in these of `tunable.FORMS`, one for each."""
        left = iter(forms)
        self.chain = [
            replace(layer, form=next(left)) if isinstance(layer, Convolution) and not layer.frozen else layer
            for layer in self.chain
        ]

    def tunable_operations(self, size: Workload) -> Iterator[TunableOperation]:
        """The trained convolutions, each on inputs of its own size."""
        theta, stats, x = self._start(size)
        state = Pass(self._tensors(theta), self.statistics(stats), None, True, self.products, _tuning_draws(size))
        x = stack_images(x)
        trained_before = False
        for layer in self.chain:
            if isinstance(layer, Convolution) and not layer.frozen:
                yield layer.tunable(x, state, size, trained_before)
            trained_before = trained_before or isinstance(layer, (Convolution, BatchNorm, Linear))
            with torch.no_grad():
                x = layer(x, state)

    def step(self, size: Workload) -> Callable[[], Gradient]:
        """A function that computes one gradient of so many clients."""
        theta, stats, x = self._start(size)
        y = torch.zeros(size.clients, size.batch, dtype=torch.int64, device=size.device)
        if self.loss is squared_error:
            y = self.outputs(theta[0], stats[0], x[0]).expand(size.clients, -1, -1)
        return partial(self.gradient, theta, Batch(x, y, None, stats), _tuning_draws(size))

    def tuning_key(self, size: Workload) -> dict[str, Any]:
        """What the time of `step` depends on besides forms and device."""
        return {"model": self.layers, "input": size.shape, "batch": size.batch, "products": str(self.products)}

    def gradient(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> Gradient:
        batch = _real_places(theta, batch)
        leaf = theta.detach().requires_grad_()
        with torch.enable_grad():
            outputs, stats = self._forward(leaf, batch.stats, batch.x, batch.weight, training=True, draws=draws)
            loss_M = mean_loss(self.loss, outputs, batch.y, batch.weight)
            (grad,) = torch.autograd.grad(loss_M.sum(), leaf)
        return Gradient(grad, loss_M.detach(), stats)

    @torch.no_grad()
    def batch_loss(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> tuple[Tensor, Tensor]:
        batch = _real_places(theta, batch)
        outputs, stats = self._forward(theta, batch.stats, batch.x, batch.weight, training=True, draws=draws)
        return exact_mean_loss(self.loss, outputs, batch.y, batch.weight), stats

    def client_outputs(
        self, theta: Tensor, batch: Batch, training: bool, draws: StepDraws | None = None
    ) -> tuple[Tensor, Tensor]:
        weight = None if batch.weight is None else batch.weight.to(theta.dtype)
        return self._forward(theta, batch.stats, batch.x, weight, training, draws)

    def _start(self, size: Workload) -> tuple[Tensor, Tensor, Tensor]:
        """Parameters [M, D], statistics [M, C] and inputs [M, B, C, H, W] to measure with."""
        theta, stats = (part.to(size.device).expand(size.clients, -1).contiguous() for part in self.init(TRIAL))
        theta += 0.1 * like_samples(TRIAL.fold_in("theta"), theta)
        channels, height, width = size.shape
        x = torch.empty(size.clients, size.batch, height, width, channels, device=size.device)
        return theta, stats, like_samples(TRIAL.fold_in("x"), x).movedim(-1, -3)

    @torch.no_grad()
    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        return self._forward(theta[None], stats[None], x[None], None, training=False)[0][0]

    def _tensors(self, theta: Tensor) -> list[Tensor]:
        """[M, *shape] views, as `Pass.parameters`."""
        frozen = self.frozen_on(theta).values()
        return self.parameters(theta) + [tensor.expand(theta.shape[0], *tensor.shape) for tensor in frozen]

    def _forward(
        self,
        theta: Tensor,
        stats: Tensor,
        x: Tensor,
        weight: Tensor | None,
        training: bool,
        draws: StepDraws | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Outputs [M, B, O] and new statistics [M, C]."""
        products = self.products if training else None
        parts = self._tensors(theta), self.statistics(stats.to(theta.dtype))
        state = Pass(*parts, weight, training, products, draws)
        x = x.to(theta.dtype)
        if x.dim() == 5:
            x = stack_images(x)
        for layer in self.chain:
            x = layer(x, state)
        if training and self.num_stats:
            stats = torch.cat([part.detach() for part in state.statistics], 1)
        return x.to(theta.dtype), stats


def _real_places(theta: Tensor, batch: Batch) -> Batch:
    """The batch; of one client on a CPU without its empty places, which is exact and cheaper than a mask."""
    if batch.weight is None:
        return batch
    weight = batch.weight.to(theta.dtype)
    if theta.shape[0] == 1 and theta.device.type == "cpu":
        real = weight[0].nonzero()[:, 0]
        if len(real):
            return Batch(batch.x[:, real], batch.y[:, real], None, batch.stats)
    return replace(batch, weight=weight)


def _tuning_draws(size: Workload) -> StepDraws:
    """Draws to measure with."""
    return StepDraws(TRIAL, torch.arange(size.clients, device=size.device))
