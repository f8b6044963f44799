"""A gradient hook for a loss of one's own, of what the network gives for a batch: distillation, calibrated logits.

Shape legend: A clients still at work, B batch, O outputs.
"""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from fedcomp.client.contract import LocalData
from fedcomp.client.hook import Hook, Reads
from fedcomp.model.contract import Batch, Gradient
from fedcomp.random.keys import Key

OwnLoss = Callable[[Tensor, Batch, Reads], Tensor]
"""[A] each client's loss of its batch, from the outputs [A, B, O] of its model in training; `Reads` as in a `Hook`."""


def own_loss(
    data: LocalData,
    loss: OwnLoss,
    name: Hashable,
    rows: tuple[Tensor, ...] = (),
    shared: tuple[Tensor, ...] = (),
    key: Key | None = None,
) -> Hook:
    """The hook that makes steps along the gradient of `loss` instead of the task's, which is not added.

    Args:
        loss: computes with torch's operations, which autograd goes back through; its other arguments are as in `Hook`.
            Places without a sample must not count: `client_mean` (`fedcomp/model/loss.py`) is the mean of the others.
    """

    def gradient(theta: Tensor, batch: Batch, reads: Reads) -> Gradient:
        leaf = theta.detach().requires_grad_()
        with torch.enable_grad():
            outputs, stats = data.outputs(leaf, batch, reads.step)
            losses = loss(outputs, batch, reads)
            if losses.shape != theta.shape[:1]:
                raise ValueError(
                    f"the loss {name} has shape {tuple(losses.shape)}, but must be one number for each of the "
                    f"{len(theta)} clients at work, [A]: client_mean(losses, batch.weight) makes it of [A, B]"
                )
            (grad,) = torch.autograd.grad(losses.sum(), leaf)
        return Gradient(grad, losses.detach(), stats)

    return Hook(gradient, ("own loss", name), rows, shared, Key() if key is None else key)
