"""Clients folded into the batch: one forward pass for all of them over a frozen network with adapters.

Its frozen layers see one batch [M B, ...]; only adapters and a trained head know that there are M clients, and multiply
by batched products. As nothing in such a network mixes places of a batch, the gradient of the sum of the clients'
losses by the rows [M, D] is every client's own. Ordinary autograd does it, so any layer works that torch has.

Shape legend: M clients, D parameters, B batch.
"""

import torch
from torch import Tensor, nn

from fedcomp.core.accelerated import Form
from fedcomp.model.batched.checkpointing import switch_of, turned_on
from fedcomp.model.batched.functional import ALL_AT_ONCE, Functional
from fedcomp.model.contract import Batch, Gradient, StepDraws
from fedcomp.model.flat import statistics_of, trained_parameters
from fedcomp.model.lora.linear import LoraLinear, TrainedLinear
from fedcomp.model.loss import exact_mean_loss, mean_loss
from fedcomp.model.tunable import IN_BATCH, VMAP

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
    """A `foldable` module: several clients in one pass, or as `Functional` where this gives other results.

    Attributes:
        client_form: as in `tunable.ClientForms`.
    """

    client_form = IN_BATCH

    @property
    def client_forms(self) -> tuple[str, ...]:
        """As in `tunable.ClientForms`."""
        by_vmap = not (self.vmap_refused or self.slow_by_vmap or ALL_AT_ONCE.refused)
        return IN_BATCH, *((VMAP,) if by_vmap else ())

    @property
    def drops_empty_places(self) -> bool:
        return not self.takes_padding or (not self._folds and super().drops_empty_places)

    @property
    def _folds(self) -> bool:
        return self.client_form == IN_BATCH and not FOLDED.refused

    def _together(self, with_grad: bool, theta: Tensor, batch: Batch, draws: StepDraws | None) -> Gradient | None:
        alone = len(theta) == 1 and batch.weight is None
        if self._folds and not (alone or (batch.weight is not None and not self.takes_padding)):
            found = self._folded(with_grad, theta, batch, draws)
            if self._agrees(FOLDED, with_grad, found, theta, batch, draws):
                return found
            self._own.drawing.mode = None
        return super()._together(with_grad, theta, batch, draws)

    def _folded(self, with_grad: bool, theta: Tensor, batch: Batch, draws: StepDraws | None) -> Gradient:
        leaf = theta.detach().requires_grad_(with_grad)
        drawing = self._drawing(draws, True, theta.device, folded=True)
        with torch.set_grad_enabled(with_grad), turned_on(switch_of(self._worker())), drawing:
            outputs, _ = self._outputs(leaf, batch.stats[0], batch.x.flatten(0, 1))
            mean = mean_loss if with_grad else exact_mean_loss
            weight = batch.weight if batch.weight is None else batch.weight.to(theta.dtype)
            loss = mean(self.loss, outputs.unflatten(0, batch.y.shape[:2]), batch.y, weight)
            grad = torch.autograd.grad(loss.sum(), leaf)[0] if with_grad else theta[:, :0]
        return Gradient(grad, loss.detach(), batch.stats)
