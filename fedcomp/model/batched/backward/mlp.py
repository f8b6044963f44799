"""Gradients of M perceptrons written out by hand: autograd would cost more than the arithmetic of small layers.

Small layers are computed by compiled loops (`mlp_compiled.py`) after `COMPILE_AFTER` gradients, with the same bits.

Shape legend: M clients, D parameters, B batch, F features, O outputs.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby

import torch
from torch import Tensor, nn

from fedcomp.core.step_counts import StepCounts
from fedcomp.model.batched.backward.dense import (
    dense_backward,
    dense_forward,
    dense_layers,
    dense_views,
    output_gradient,
)
from fedcomp.model.batched.backward.mlp_compiled import LEAST_BATCH, SgdOnSamples, compiled_mlp
from fedcomp.model.batched.translate import translate
from fedcomp.model.contract import Gradient, StepDraws, TrainFused
from fedcomp.model.flat import Flat, Make
from fedcomp.model.loss import Loss, cross_entropy, exact_mean_loss, squared_error
from fedcomp.model.precision import product_type
from fedcomp.random.keys import has_triton

COMPILE_AFTER = 10_000
"""Gradients of a model after which its compiled form is used. That form saves about 0.1 ms a gradient, but loading it
takes a second, and compiling it, the first time on a machine, ten."""


class Perceptron(Flat):
    """A stack of only Flatten, Linear and ReLU, with cross-entropy or squared error, without autograd."""

    def __init__(self, module: nn.Module, loss: Loss, make: Make | None = None, precision: str = "fp32") -> None:
        """ValueError if `module` or `loss` is none of those, or for an unknown precision."""
        super().__init__(module, make)
        denses = dense_layers(self, translate(module))
        if denses is None or loss not in (cross_entropy, squared_error):
            raise ValueError(
                f"{type(module).__name__} with {loss} is no perceptron (Flatten, Linear and ReLU, cross-entropy or "
                "squared error): use Stacked or Functional"
            )
        self.loss = loss
        self.denses = denses
        self.products = product_type(precision)
        self.small = compiled_mlp(denses, loss) if self.products is None else None
        self._num_gradients = 0
        self._verified: set[tuple[str, int, int]] = set()  # (what, M, B) of which the compiled form gave the same bits

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
        if theta.stride(1) != 1:
            theta = theta.contiguous()
        if x.dim() > 3:
            x = x.flatten(2)
        small = self.small
        if small is None or x.dtype != theta.dtype or not small.takes(theta, x.shape[1]):
            return self._tensor_gradient(theta, stats, x, y, weight)
        self._num_gradients += 1
        if self._num_gradients < COMPILE_AFTER:
            return self._tensor_gradient(theta, stats, x, y, weight)
        found = Gradient(*small.gradient(theta, x, y, weight), stats)
        if ("gradient", x.shape[0], x.shape[1]) in self._verified:
            return found
        expected = self._tensor_gradient(theta, stats, x, y, weight)
        same = torch.equal(found.grad, expected.grad) and torch.equal(found.loss, expected.loss)
        self._note("gradient", x, same)
        return expected

    def _note(self, what: str, batch: Tensor, same: bool) -> None:
        """Remember whether the compiled form gave the bits of the tensor code, for batches of this size [M, B, ...]."""
        if same:
            self._verified.add((what, batch.shape[0], batch.shape[1]))
        else:
            self.small = None  # this processor rounds otherwise, and no bit may depend on when a run was resumed

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
        rows = theta.contiguous().to(self.products or theta.dtype)
        z_MOB = dense_forward(self.denses, dense_views(self.denses, rows), x.flatten(2).to(rows.dtype))[-1]
        return exact_mean_loss(self.loss, z_MOB.mT, y, weight), stats

    def _tensor_gradient(self, theta: Tensor, stats: Tensor, x: Tensor, y: Tensor, weight: Tensor | None) -> Gradient:
        views = dense_views(self.denses, theta if self.products is None else theta.to(self.products))
        values = dense_forward(self.denses, views, x if x.dtype == views[0][0].dtype else x.to(views[0][0].dtype))
        loss, g_transposed = output_gradient(self.loss, self.denses[-1].relu, values.pop().to(theta.dtype), y, weight)
        parts = dense_backward(self.denses, views, values, g_transposed, self.products)
        return Gradient(torch.cat(parts, 1), loss, stats)  # cat promotes bfloat16 parts to float32

    def fused_sgd(self, x: Tensor, y: Tensor, batch_size: int) -> TrainFused | None:
        """As `contract.FusesSgd`: one launch of a GPU, or compiled steps with the bits of a loop of gradients."""
        return self._in_one_launch(x, y, batch_size) if has_triton(x.device) else self._in_steps(x, y, batch_size)

    def _in_steps(self, x: Tensor, y: Tensor, batch_size: int) -> TrainFused | None:
        """All local steps in compiled loops on a CPU; None unless gradients are compiled already."""
        plain = x.dim() == 2 and x.is_contiguous() and x.dtype in (torch.uint8, torch.float32)
        compiles = self.small is not None and self._num_gradients >= COMPILE_AFTER - 1 and x.device.type == "cpu"
        return partial(self._train, x, y) if plain and compiles and batch_size >= LEAST_BATCH else None

    def _in_one_launch(self, x: Tensor, y: Tensor, batch_size: int) -> TrainFused | None:
        """All local steps in one Triton kernel; None unless there is one small hidden layer with ReLU, in float32."""
        if len(self.denses) != 2 or self.products is not None:
            return None
        first, second = self.denses
        classes = self.loss is cross_entropy and y.dim() == 1 and x.dim() == 2
        biases = (first.bias is None) == (second.bias is None)
        if not (classes and biases and first.relu and not second.relu and x.dtype in (torch.uint8, torch.float32)):
            return None
        from fedcomp.model.batched.backward import mlp_triton

        constants = mlp_triton.sizes(first.num_in, first.num_out, second.num_out, batch_size)
        if constants is None:
            return None
        places = first.weight, first.bias, second.weight, second.bias
        return partial(mlp_triton.train, (x, y), constants, places)

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
        """As `contract.TrainFused`, of rows on a CPU, from the raw samples x [n, F] and their targets y."""
        theta, total = theta.clone(memory_format=torch.contiguous_format), theta.new_zeros(theta.shape[0])
        sgd = SgdOnSamples(x, *normalisation, rate, decay)
        targets = y.index_select(0, numbers.flatten()).view(*numbers.shape, *y.shape[1:])
        done = 0
        for (active, longest, ragged), alike in groupby(counts.shapes):
            steps = slice(done, done + len(list(alike)))
            real = torch.from_numpy(counts.of_steps[steps, :active, None]) if ragged else None
            weight = None if real is None else (torch.arange(longest) < real).to(theta.dtype)
            batches = numbers[steps, :active, :longest], targets[steps, :active, :longest], weight
            self._descend(sgd, theta[:active], total[:active], *batches)
            done = steps.stop
        return theta, total

    def _descend(
        self, sgd: SgdOnSamples, theta: Tensor, total: Tensor, numbers: Tensor, y: Tensor, weight: Tensor | None
    ) -> None:
        """Steps of theta [M, D], in place, on the samples `numbers` [S, M, B]; adds their losses to total [M].

        y: targets [S, M, B] or [S, M, B, O]. weight: [S, M, B], for each step as in `contract.Model`.
        """
        _, num_clients, batch = numbers.shape
        compiled = self.small if self.small is not None and self.small.takes(theta, batch) else None
        if compiled is not None and ("steps", num_clients, batch) in self._verified:
            compiled.descend(sgd, theta, total, numbers, y, weight)
            return
        expected, losses = theta.clone(), total.clone()
        for step, chosen in enumerate(numbers):
            own = None if weight is None else weight[step]
            found = self._tensor_gradient(expected, theta[:, :0], sgd.inputs(chosen), y[step], own)
            sgd.descend(expected, found.grad)
            losses += found.loss
        if compiled is not None:
            compiled.descend(sgd, theta, total, numbers, y, weight)
            self._note("steps", numbers[0], torch.equal(theta, expected) and torch.equal(total, losses))
        theta.copy_(expected)
        total.copy_(losses)

    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        """[B, O] outputs of one model (theta [D]) on x [B, ...]."""
        return self.outputs_of_rows(theta[None], x)[0]

    @torch.no_grad()
    def outputs_of_rows(self, theta: Tensor, x: Tensor) -> Tensor:
        """[M, B, O] outputs of each row of theta [M, D] on x [B, ...]."""
        views = dense_views(self.denses, theta)
        *_, z_MOB = dense_forward(self.denses, views, x.to(theta.dtype).flatten(1).expand(theta.shape[0], -1, -1))
        return z_MOB.mT
