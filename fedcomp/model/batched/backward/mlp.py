"""Gradients of M perceptrons written out by hand: autograd would cost more than the arithmetic of small layers.

In float32 on a CPU, small ones are compiled (`compiled_network.py`).

Shape legend: M clients, D parameters, B batch, O outputs.
"""

import torch
from torch import Tensor, nn

from fedcomp.model.batched.backward.dense import dense_backward, dense_forward, dense_layers, output_gradient
from fedcomp.model.batched.stacked import Stacked
from fedcomp.model.contract import Batch, Gradient, StepDraws
from fedcomp.model.flat import Make
from fedcomp.model.loss import Loss, cross_entropy, exact_mean_loss, squared_error


class Perceptron(Stacked):
    """A stack of only Flatten, Linear and ReLU, with cross-entropy or squared error, without autograd."""

    def __init__(self, module: nn.Module, loss: Loss, make: Make | None = None, precision: str = "fp32") -> None:
        """ValueError if `module` or `loss` is none of those, or for an unknown precision."""
        super().__init__(module, loss, make, precision)
        denses = dense_layers(self, self.chain)
        if denses is None or loss not in (cross_entropy, squared_error):
            raise ValueError(
                f"{type(module).__name__} with {loss} is no perceptron (Flatten, Linear and ReLU, cross-entropy or "
                "squared error): use Stacked or Functional"
            )
        self.denses = denses

    @torch.no_grad()
    def gradient(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> Gradient:
        x = batch.x.flatten(2)
        if theta.stride(1) != 1:
            theta = theta.contiguous()
        rows = theta if self.products is None else theta.to(self.products)
        views = [dense.views(rows) for dense in self.denses]
        values = dense_forward(self.denses, views, x if x.dtype == rows.dtype else x.to(rows.dtype))
        z, relu = values.pop().to(theta.dtype), self.denses[-1].relu
        loss, g_transposed = output_gradient(self.loss, relu, z, batch.y, batch.weight)
        parts = dense_backward(self.denses, views, values, g_transposed, self.products)
        return Gradient(torch.cat(parts, 1).to(theta.dtype), loss, batch.stats)  # without biases all may be bfloat16

    @torch.no_grad()
    def batch_loss(self, theta: Tensor, batch: Batch, draws: StepDraws | None = None) -> tuple[Tensor, Tensor]:
        rows = theta.contiguous().to(self.products or theta.dtype)
        views = [dense.views(rows) for dense in self.denses]
        z_MOB = dense_forward(self.denses, views, batch.x.flatten(2).to(rows.dtype))[-1]
        return exact_mean_loss(self.loss, z_MOB.mT, batch.y, batch.weight), batch.stats

    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        return self.outputs_of_rows(theta[None], x)[0]

    @torch.no_grad()
    def outputs_of_rows(self, theta: Tensor, x: Tensor) -> Tensor:
        """[M, B, O] outputs of each row of theta [M, D] on x [B, ...]."""
        rows = theta.contiguous()  # drawn masks of a few entries lie in memory column by column
        views = [dense.views(rows) for dense in self.denses]
        *_, z_MOB = dense_forward(self.denses, views, x.to(theta.dtype).flatten(1).expand(theta.shape[0], -1, -1))
        return z_MOB.mT
