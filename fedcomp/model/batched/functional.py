"""Any `nn.Module` over rows of parameters, by `torch.func`: the fallback, slower than stacked layers.

Shape legend: M clients, A of them at work, D parameters, C running statistics, B batch, O outputs.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from fedcomp.core.accelerated import Form, tolerance_of
from fedcomp.core.first_line import first_sentence
from fedcomp.model.batched import lstm
from fedcomp.model.batched.checkpointing import switch_of, turned_on
from fedcomp.model.batched.module_calls import ModuleCalls, Outputs, as_inputs
from fedcomp.model.contract import Batch, Gradient, StepDraws
from fedcomp.model.flat import Make
from fedcomp.model.loss import BatchLoss, Loss, exact_mean_loss, mean_loss

log = logging.getLogger("fedcomp")

ALL_AT_ONCE = Form("clients of a network all at once", "one after another")
NETWORK, MOST = 30.0, 0.3
"""How much more a network's gradients may differ than a product, as rounding goes through all layers; at most."""
SLOW_BY_VMAP = (nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.LSTM)
"""Modules that run faster one client after another on a CPU. vmap runs convolutions as grouped ones in a slow layout,
and has no rule for fused attention: a step of 10 clients of `model=char_gpt`, batches of 10: 152 ms, a loop 134. With
the rule of lstm.py such a step of `model=char_lstm_fedmrn` takes 330 ms, a loop 172: products of few rows."""
NO_VMAP = (nn.RNNBase,)
"""Modules for which vmap has no rule but takes a slow loop of its own, without an error, but for the LSTMs of lstm.py.
The same step of LEAF's LSTM (`model=char_lstm`): 2,491 ms under vmap, 412 ms here, 391 ms as ten modules, on one thread
of a busy machine."""


class Functional(ModuleCalls):
    """A model run as the module itself, one client after another, or all at once by `vmap` where that pays.

    Attributes:
        vmap_refused: whether `vmap` cannot run the module, as one with checkpointed layers, or has no rule for a layer.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | BatchLoss,
        input_shape: tuple[int, ...],
        make: Make | None = None,
        precision: str = "fp32",
        vocab_size: int | None = None,
    ) -> None:
        """As `ModuleCalls`, with the loss."""
        super().__init__(module, input_shape, make, precision, vocab_size)
        self.loss = loss
        self.slow_by_vmap = any(isinstance(part, SLOW_BY_VMAP) for part in module.modules())
        checkpointed = switch_of(module) is not None
        recurrent = any(isinstance(part, NO_VMAP) and not lstm.has_rule(part) for part in module.modules())
        self.vmap_refused = checkpointed or recurrent

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
        made = self._vmapped(of_client, [theta, batch.stats, batch.x, batch.y], batch.weight, draws)
        if made is None:
            return None
        grad, (loss, new) = made
        found = Gradient(grad, loss, new)
        return found if self._agrees(ALL_AT_ONCE, with_grad, found, theta, batch, draws) else None

    def _vmapped(
        self, of_client: Callable[..., Any], rows: list[Tensor], weight: Tensor | None, draws: StepDraws | None
    ) -> Any:
        """`of_client` of rows, theta [A, D] the first of them, and of real places; None: `vmap` cannot run it."""
        theta = rows[0]
        more = [] if weight is None else [weight.to(theta.dtype)]
        self._own.at_once = True
        try:
            with self._drawing(draws, True, theta.device):
                return vmap(of_client, randomness="different" if draws else "error")(*rows, *more)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except RuntimeError as error:  # data-dependent control flow, an unsupported operation
            self.vmap_refused = True
            log.info("clients run one after another: vmap cannot run the model (%s)", first_sentence(error))
            return None
        finally:
            self._own.at_once = False

    def _agrees(
        self, form: Form, with_grad: bool, found: Gradient, theta: Tensor, batch: Batch, draws: StepDraws | None
    ) -> bool:
        """Whether the first two clients, computed one after another, get what they got among all."""
        what = f"{'gradients' if with_grad else 'losses'}{' of padded batches' if batch.weight is not None else ''}"

        def alone() -> tuple[Tensor, ...]:
            two = self._looped(with_grad, theta[:2], batch[:2], draws)
            return two.grad, two.loss, two.stats

        accelerated = found.grad[:2], found.loss[:2], found.stats[:2]
        return form.agrees(what, lambda: accelerated, alone, self._tolerance(theta.device))

    def _tolerance(self, device: torch.device) -> float:
        """How far results all at once may be from those one after another."""
        return min(MOST, NETWORK * tolerance_of(self.products, device))

    def client_outputs(
        self, theta: Tensor, batch: Batch, training: bool, draws: StepDraws | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `contract.Model`, all clients at once or one after another; nothing is computed again going back."""
        x, stats = as_inputs(batch.x, theta.dtype), batch.stats.to(theta.dtype)
        batch = Batch(x, batch.y, batch.weight if training else None, stats)
        self._worker().train(training)
        try:
            if self._at_once(theta, batch.weight):
                call = self._outputs if training else self._call
                found = self._vmapped(call, [theta, stats, x], batch.weight, draws)
                if found is not None and self._outputs_agree(found, theta, batch, training, draws):
                    return found
            return self._outputs_looped(theta, batch, training, draws)
        finally:
            self._own.drawing.mode = None

    def _outputs_agree(
        self, found: Outputs, theta: Tensor, batch: Batch, training: bool, draws: StepDraws | None
    ) -> bool:
        """Whether the first two clients, computed one after another, get what they got among all."""
        what = f"outputs in {'training' if training else 'evaluation'}"

        def real(outputs: Tensor, stats: Tensor) -> tuple[Tensor, ...]:
            kept = outputs[:2] if batch.weight is None else outputs[:2][batch.weight[:2] > 0]
            return kept.detach(), stats[:2].detach()

        return ALL_AT_ONCE.agrees(
            what if batch.weight is None else f"{what} of padded batches",
            lambda: real(*found),
            lambda: real(*self._outputs_looped(theta[:2].detach(), batch[:2], training, draws)),
            self._tolerance(theta.device),
        )

    def _outputs_looped(self, theta: Tensor, batch: Batch, training: bool, draws: StepDraws | None) -> Outputs:
        """As `client_outputs`, one client after another; outputs of empty places are 0."""
        outputs, news = [], []
        for client, stats in enumerate(batch.stats):
            x_B = batch.x[client]
            real = None if batch.weight is None else batch.weight[client] > 0
            if real is not None and not real.any():
                outputs.append(self._no_outputs(theta[client], stats, x_B))
                news.append(stats)
                continue
            own = None if draws is None else draws.of_client(client)
            with self._drawing(own, False, theta.device):
                call = self._outputs if training else self._call
                found, new = call(theta[client], stats, x_B if real is None else x_B[real])
            if real is not None:
                found = found.new_zeros(len(real), *found.shape[1:]).index_put((real,), found)
            outputs.append(found)
            news.append(new.detach())
        return torch.stack(outputs), torch.stack(news)

    def _no_outputs(self, theta_D: Tensor, stats_C: Tensor, x_B: Tensor) -> Tensor:
        """[B, O] zeros, of gradient 0, of a client without samples in training."""
        with torch.no_grad():
            self._worker().eval()  # BatchNorm trains on no single sample
            like, _ = self._call(theta_D, stats_C, x_B)
        self._worker().train()
        return torch.zeros_like(like) + 0 * theta_D[0]

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

    def _loss_alone(self, theta_D: Tensor, *batch: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """`_loss` in float64, behind an empty gradient [0]."""
        return theta_D[:0], partial(self._loss, mean=exact_mean_loss)(theta_D, *batch)
