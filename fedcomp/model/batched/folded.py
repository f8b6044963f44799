"""Clients folded into the batch: one forward pass for all of them over a frozen network with adapters.

Its frozen layers see one batch [M B, ...]; only adapters and a trained head know that there are M clients, and multiply
by batched products. As nothing in such a network mixes places of a batch, the gradient of the sum of the clients'
losses by the rows [M, D] is every client's own. Ordinary autograd does it, so any layer works that torch has.

Shape legend: M clients, D parameters, C running statistics, B batch, O outputs.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from fedcomp.core.accelerated import Form, tolerance_of
from fedcomp.model.batched.all_at_once import MOST, NETWORK
from fedcomp.model.batched.functional import Functional, Rows, as_inputs
from fedcomp.model.contract import Gradient, StepDraws
from fedcomp.model.flat import statistics_of, trained_parameters
from fedcomp.model.lora.linear import LoraLinear, TrainedLinear
from fedcomp.model.loss import exact_mean_loss, mean_loss

FOLDED = Form("clients folded into the batch", "one after another")


def foldable(module: nn.Module) -> bool:
    """Whether only layers that take one weight a client are trained, and nothing keeps statistics of a batch."""
    own = {
        id(tensor)
        for part in module.modules()
        if isinstance(part, LoraLinear | TrainedLinear)
        for tensor in part.parameters(recurse=False)
    }
    return not statistics_of(module) and all(id(tensor) in own for tensor in trained_parameters(module))


class Folded(Functional):
    """A `foldable` module: several clients in one pass, or as `Functional` where this gives other results."""

    @property
    def drops_empty_places(self) -> bool:
        """As in `contract.Model`."""
        return not self.takes_padding or (FOLDED.refused and super().drops_empty_places)

    def _trained(self, with_grad: bool, batch: Rows, weight: Tensor | None, draws: StepDraws | None) -> Gradient:
        theta, stats, x, y = batch
        alone = len(theta) == 1 and weight is None
        if alone or FOLDED.refused or (weight is not None and not self.takes_padding):
            return super()._trained(with_grad, batch, weight, draws)
        theta = theta.detach()
        batch = theta, stats.to(theta.dtype), as_inputs(x, theta.dtype), y
        self._worker().train()
        assert draws is not None or not self.draws_in_training, "a model that draws in training needs `draws`"
        try:
            found = self._folded(with_grad, batch, weight, draws)
            two = theta[:2], batch[1][:2], batch[2][:2], y[:2]
            plain = partial(self._looped, with_grad, two, None if weight is None else weight[:2], draws)
            what = f"{'gradients' if with_grad else 'losses'}{'' if weight is None else ' of padded batches'}"
            tolerance = min(MOST, NETWORK * tolerance_of(self.products, theta.device))
            if FOLDED.agrees(what, lambda: _first(found), lambda: _first(plain()), tolerance):
                return found
        finally:
            self._own.drawing.mode = None
        return super()._trained(with_grad, batch, weight, draws)

    def _folded(self, with_grad: bool, batch: Rows, weight: Tensor | None, draws: StepDraws | None) -> Gradient:
        theta, stats, x, y = batch
        leaf = theta.requires_grad_(with_grad)
        with torch.set_grad_enabled(with_grad), self._drawing(draws, True, theta.device, folded=True):
            outputs, _ = self._outputs(leaf, stats[0], x.flatten(0, 1))
            mean = mean_loss if with_grad else exact_mean_loss
            weight = weight if weight is None else weight.to(theta.dtype)
            loss = mean(self.loss, outputs.unflatten(0, y.shape[:2]), y, weight)
        grad = torch.autograd.grad(loss.sum(), leaf)[0] if with_grad else theta[:, :0]
        return Gradient(grad, loss.detach(), stats)


def _first(one: Gradient) -> tuple[Tensor, ...]:
    return one.grad[:2], one.loss[:2]
