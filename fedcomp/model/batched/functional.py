"""Any `nn.Module` over rows of parameters, by `torch.func`: the fallback, slower than stacked layers.

Shape legend: M clients, D parameters, C running statistics, B batch, O outputs.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedcomp.core.accelerated import Form, tolerance_of
from fedcomp.core.first_line import first_line
from fedcomp.model.batched.checkpointing import switch_of, turned_on
from fedcomp.model.batched.dropout import Drawing, KeyedDraws, UnkeyedDraw, key_dropouts, may_draw, trial_draws
from fedcomp.model.batched.padding import Places, leave_out, random_inputs, reads_real_samples_only
from fedcomp.model.contract import Batch, Gradient, Model, StepDraws
from fedcomp.model.flat import Make, copy_sharing_frozen, flatten, statistics_of
from fedcomp.model.loss import BatchLoss, Loss, exact_mean_loss, mean_loss
from fedcomp.model.precision import product_type

log = logging.getLogger("fedcomp")

ALL_AT_ONCE = Form("clients of a network all at once", "one after another")
NETWORK, MOST = 30.0, 0.3
"""How much more a network's gradients may differ than a product, as rounding goes through all layers; at most."""
SLOW_BY_VMAP = (nn.modules.conv._ConvNd, nn.MultiheadAttention)
"""Modules that run faster one client after another on a CPU. vmap runs convolutions as grouped ones in a slow layout,
and has no rule for fused attention: a step of 10 clients of `model=char_gpt`, batches of 10: 152 ms, a loop 134."""
NO_VMAP = (nn.RNNBase,)
"""Modules for which vmap has no rule but takes a slow loop of its own, without an error. The same step of LEAF's LSTM
(`model=char_lstm`): 2,491 ms under vmap, 412 ms here, 391 ms as ten modules, on one thread of a busy machine."""
Outputs = tuple[Tensor, Tensor]
"""Of a module, and its new statistics [C]."""


class _Thread(threading.local):
    """A thread's own copy of the module, and the device of its buffers that are no statistics; None before its use."""

    module: nn.Module | None = None
    device: torch.device | None = None


class Functional(Model):
    """A model run as the module itself, one client after another, or all at once by `vmap` where that pays.

    Attributes:
        draws_anywhere: whether others than torch's dropout modules draw random numbers in training.
        takes_padding: whether batches with empty places may go all at once: tried on samples of `input_shape`.
        vmap_refused: whether `vmap` cannot run the module, as one with checkpointed layers, or has no rule for a layer.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | BatchLoss,
        make: Make | None = None,
        precision: str = "fp32",
        input_shape: tuple[int, ...] | None = None,
        vocab_size: int | None = None,
    ) -> None:
        """`input_shape`: of one sample; None: clients whose batches have empty places run one after another.

        `vocab_size`: of inputs that are tokens; None: inputs are floats.

        ValueError for an unknown precision, and for a module that draws in its backward pass.
        """
        super().__init__(module, make)
        self.loss = loss
        self.products = product_type(precision)
        self.names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        self.stat_names = list(statistics_of(module))
        self.slow_by_vmap = any(isinstance(part, SLOW_BY_VMAP) for part in module.modules())
        checkpointed = switch_of(module) is not None
        self.vmap_refused = checkpointed or any(isinstance(part, NO_VMAP) for part in module.modules())
        self._own = _Thread()
        self.draws_in_training = self.draws_anywhere = may_draw(module)
        self.takes_padding = input_shape is not None and self._takes_padding(input_shape, vocab_size)
        if input_shape is not None:
            self._find_draws(input_shape, vocab_size)

    def gradient(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> Gradient:
        """As `contract.Model`.

        Clients draw the same numbers one after another as all at once. With a `weight`, clients of a module that
        `takes_padding` run on all places, and those of others one after another on their real samples only, so that
        whatever a module computes over its batch stays exact.
        """
        return self._trained(True, theta, batch, draws)

    @torch.no_grad()
    def batch_loss(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> tuple[Tensor, Tensor]:
        found = self._trained(False, theta, batch, draws)
        return found.loss, found.stats

    def _trained(self, with_grad: bool, theta: Tensor, batch: Batch, draws: StepDraws | None) -> Gradient:
        """Gradients [M, D], or [M, 0] without them, losses and statistics in training mode."""
        theta = theta.detach()
        batch = replace(batch, x=as_inputs(batch.x, theta.dtype), stats=batch.stats.to(theta.dtype))
        self._worker().train()
        assert draws is not None or not self.draws_in_training, "a model that draws in training needs `draws`"
        try:
            found = self._together(with_grad, theta, batch, draws)
            return self._looped(with_grad, theta, batch, draws) if found is None else found
        finally:
            self._own.drawing.mode = None

    def _together(self, with_grad: bool, theta: Tensor, batch: Batch, draws: StepDraws | None) -> Gradient | None:
        """As `_trained`, all clients at once by `vmap`; None where they go one after another."""
        if not self._at_once(theta, batch.weight):
            return None
        of_client = grad_and_value(self._loss, has_aux=True) if with_grad else self._loss_alone
        rows = [theta, batch.stats, batch.x, batch.y]
        if batch.weight is not None:
            rows.append(batch.weight.to(theta.dtype))
        try:
            with self._drawing(draws, True, theta.device):
                grad, (loss, new) = vmap(of_client, randomness="different" if draws else "error")(*rows)
            found = Gradient(grad, loss, new)
            return found if self._agrees(ALL_AT_ONCE, with_grad, found, theta, batch, draws) else None
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except RuntimeError as error:  # data-dependent control flow, an unsupported operation
            self.vmap_refused = True
            log.info("clients run one after another: vmap cannot run the model (%s)", first_line(error))
            return None

    def _agrees(
        self, form: Form, with_grad: bool, found: Gradient, theta: Tensor, batch: Batch, draws: StepDraws | None
    ) -> bool:
        """Whether the first two clients, computed one after another, get what they got among all."""
        what = f"{'gradients' if with_grad else 'losses'}{' of padded batches' if batch.weight is not None else ''}"
        tolerance = min(MOST, NETWORK * tolerance_of(self.products, theta.device))

        def alone() -> tuple[Tensor, ...]:
            two = self._looped(with_grad, theta[:2], batch[:2], draws)
            return two.grad, two.loss, two.stats

        return form.agrees(what, lambda: (found.grad[:2], found.loss[:2], found.stats[:2]), alone, tolerance)

    @torch.no_grad()
    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        self._worker().eval()
        return self._call(theta, stats.to(theta.dtype), as_inputs(x, theta.dtype))[0]

    @property
    def drops_empty_places(self) -> bool:
        return not self.takes_padding or self.vmap_refused or ALL_AT_ONCE.refused

    def _at_once(self, theta: Tensor, weight: Tensor | None) -> bool:
        """Whether the clients of these rows go all at once."""
        if self.vmap_refused or ALL_AT_ONCE.refused or (weight is not None and not self.takes_padding):
            return False
        if self.slow_by_vmap and theta.device.type == "cpu":
            return False
        return theta.shape[0] > 1 or weight is not None

    @torch.no_grad()
    def _takes_padding(self, input_shape: tuple[int, ...], vocab_size: int | None) -> bool:
        theta, stats = flatten(self.module)
        self._worker().train()

        def call(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
            return self._tried(trial_draws(extreme=True), theta, stats, x, real)

        return reads_real_samples_only(call, input_shape, vocab_size)

    def _find_draws(self, input_shape: tuple[int, ...], vocab_size: int | None) -> None:
        """Sets `draws_in_training` and `draws_anywhere` by a trial call, unless that fails.

        Raises UnkeyedDraw: the backward pass draws too.
        """
        theta, stats = flatten(self.module)
        x = random_inputs(4, input_shape, vocab_size, torch.Generator().manual_seed(0))
        self._worker().train()
        mode = trial_draws()
        try:
            outputs, _ = self._tried(mode, theta.requires_grad_(), stats, x)
            self.draws_in_training, self.draws_anywhere = mode.calls > 0, mode.drew_elsewhere
            if self.draws_in_training:
                mode.close()
                self._own.drawing.mode = mode
                with mode:
                    torch.autograd.grad(outputs.sum(), theta)
        except UnkeyedDraw:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            return
        finally:
            self._own.drawing.mode = None

    def _tried(self, mode: KeyedDraws, theta: Tensor, stats: Tensor, x: Tensor, real: Tensor | None = None) -> Outputs:
        """`_call` with draws of a trial."""
        self._own.drawing.mode = mode
        try:
            with mode:
                return self._call(theta, stats, x, real)
        finally:
            self._own.drawing.mode = None

    def _worker(self) -> nn.Module:
        """This thread's own copy of the module: a functional call puts the rows into it while it runs."""
        if self._own.module is None:
            self._own.module = copy_sharing_frozen(self.module)
            self._own.places, self._own.drawing = Places(), Drawing()
            leave_out(self._own.module, self._own.places)
            key_dropouts(self._own.module, self._own.drawing)
            if (switch := switch_of(self._own.module)) is not None:
                switch.drawing = self._own.drawing
        return self._own.module

    def _others(self, device: torch.device) -> dict[str, Tensor]:
        """Buffers that are no statistics, such as counts of batches, on `device`: copied there once in each thread.

        A CUDA graph cannot capture a copy from the host.
        """
        if self._own.device != device:
            self._own.device = device
            self._own.others = {
                name: buffer.to(device) for name, buffer in self.module.named_buffers() if name not in self.stat_names
            }
        return self._own.others

    @contextlib.contextmanager
    def _drawing(self, draws: StepDraws | None, first: bool, on: torch.device, folded: bool = False) -> Iterator[None]:
        """Inside, the worker draws from `draws`, for one gradient; `first`, `folded`: as in `KeyedDraws`."""
        if draws is None or not self.draws_in_training:
            yield
            return
        self._own.drawing.mode = KeyedDraws(draws, first, folded=folded, around=self.draws_anywhere)
        # A GPU's fused attention draws inside its kernel.
        fused = self.draws_anywhere and on.type == "cuda"
        with sdpa_kernel(SDPBackend.MATH) if fused else contextlib.nullcontext():
            yield

    def _looped(self, with_grad: bool, theta: Tensor, batch: Batch, draws: StepDraws | None) -> Gradient:
        """As `_trained`, one client after another."""
        grads, losses, news = [], [], []
        for client, stats in enumerate(batch.stats):
            real = slice(None) if batch.weight is None else batch.weight[client] > 0
            x_B, y_B = batch.x[client][real], batch.y[client][real]
            if len(y_B) == 0:
                grads.append(torch.zeros_like(theta[client] if with_grad else theta[client, :0]))
                losses.append(theta.new_zeros((), dtype=theta.dtype if with_grad else torch.float64))
                news.append(stats)
                continue
            leaf = theta[client].detach().requires_grad_(with_grad)
            own = None if draws is None else draws.of_client(client)
            checkpointed = turned_on(switch_of(self._worker()))
            with torch.set_grad_enabled(with_grad), checkpointed, self._drawing(own, False, theta.device):
                mean = mean_loss if with_grad else exact_mean_loss
                loss, new = self._loss(leaf, stats, x_B, y_B, mean=mean)
                grads.append(torch.autograd.grad(loss, leaf)[0] if with_grad else leaf[:0])
            losses.append(loss.detach())
            news.append(new.detach())
        return Gradient(torch.stack(grads), torch.stack(losses), torch.stack(news))

    def _loss(
        self,
        theta_D: Tensor,
        stats_C: Tensor,
        x_B: Tensor,
        y_B: Tensor,
        real_B: Tensor | None = None,
        mean: Callable[..., Tensor] = mean_loss,
    ) -> tuple[Tensor, Tensor]:
        """Mean loss of one client's real samples (None: all), and its statistics afterwards."""
        outputs, stats = self._outputs(theta_D, stats_C, x_B, real_B)
        return mean(self.loss, outputs[None], y_B[None], None if real_B is None else real_B[None])[0], stats

    def _outputs(self, theta: Tensor, stats_C: Tensor, x_B: Tensor, real_B: Tensor | None = None) -> Outputs:
        """`_call` in training, with the draws and the products of the gradient that is being computed."""
        mode = self._own.drawing.mode
        cast = contextlib.nullcontext() if self.products is None else self._low_precision(x_B.device.type)
        drawing = mode if mode is not None and mode.around else contextlib.nullcontext()
        with drawing, cast:  # which keeps no cast weights: within a CUDA graph they would outlive it
            outputs, stats = self._call(theta, stats_C, x_B, real_B)
        if mode is not None:
            mode.close()
        return outputs.to(theta.dtype), stats

    def _low_precision(self, device_type: str) -> torch.autocast:
        return torch.autocast(device_type, self.products, cache_enabled=False)

    def _loss_alone(self, theta_D: Tensor, *batch: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """`_loss` in float64, behind an empty gradient [0]."""
        return theta_D[:0], partial(self._loss, mean=exact_mean_loss)(theta_D, *batch)

    def _call(self, theta: Tensor, stats_C: Tensor, x_B: Tensor, real_B: Tensor | None = None) -> Outputs:
        """Outputs [B, O] and statistics [C] of the module called with one client's parameters [D] and buffers.

        With parameters [M, D] the module gets the tensors of all clients, [M, *shape].
        """
        views = self.parameters(theta) if theta.dim() == 2 else (part[0] for part in self.parameters(theta[None]))
        parameters = dict(zip(self.names, views))
        # Clones: BatchNorm updates its buffers in place.
        floats = dict(zip(self.stat_names, (part[0].clone() for part in self.statistics(stats_C[None]))))
        module = self._worker()
        others = {name: buffer.clone() for name, buffer in self._others(x_B.device).items()}
        self._own.places.real = real_B
        try:
            outputs = functional_call(module, parameters | self.frozen_on(theta) | others | floats, (x_B,))
        finally:
            self._own.places.real = None
        new = torch.cat([part.flatten() for part in floats.values()]) if floats else stats_C
        return outputs, new


def as_inputs(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in the type of the parameters, or as it is where it holds tokens."""
    return x.to(dtype) if x.is_floating_point() else x
