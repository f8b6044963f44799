"""Gradients of M perceptrons written out by hand: autograd would cost more than the arithmetic of small layers.

z_l = a_{l-1} W_l^T + b_l, a_l = relu(z_l) or z_l; backwards g = dL/dz_l gives dW_l = g^T a_{l-1}, db_l = sum_B g and
dL/da_{l-1} = g W_l. Logits are held as [M, O, B]: torch's softmax over a middle axis is four times as fast as over a
last axis of ten. In a long run small layers in
float32 on a CPU (`small_layers`) are compiled (`mlp_numba.py`), with the same bits.

Shape legend: M clients, D parameters, B batch, F features, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedcomp.model.batched.layers import Activation, Flatten, Layer, Linear
from fedcomp.model.batched.translate import translate
from fedcomp.model.contract import Gradient, StepDraws, TrainFused
from fedcomp.model.flat import Flat, Make
from fedcomp.model.loss import Loss, cross_entropy, exact_mean_loss, squared_error
from fedcomp.model.precision import product_type
from fedcomp.random.keys import has_triton

LEAST_IN, LEAST_OUT, LEAST_BATCH, MOST = 16, 10, 8, 128
"""Sizes of layers and batches that are compiled: up to `MOST`, MKL's products are chains of fused multiply-adds."""
COMPILE_AFTER = 10_000
"""Gradients of a process after which the compiled form is taken: it saves about 0.1 ms of each, and takes a second to
load, the first time on a machine ten seconds to compile."""

_RELU = (torch.relu, torch.relu_)


@dataclass(frozen=True)
class DenseLayer:
    """One linear layer in the row: its sizes, where weight and bias begin, and whether ReLU follows."""

    num_in: int
    num_out: int
    weight: int
    bias: int | None
    relu: bool

    def views(self, theta: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weights [M, out, in] and biases [M, 1, out] in the rows; cheaper than split, view and unsqueeze."""
        num_clients, row, base = theta.shape[0], theta.stride(0), theta.storage_offset()
        sizes = (num_clients, self.num_out, self.num_in)
        weights = theta.as_strided(sizes, (row, self.num_in, 1), base + self.weight)
        if self.bias is None:
            return weights, None
        return weights, theta.as_strided((num_clients, 1, self.num_out), (row, 0, 1), base + self.bias)


class Perceptron(Flat):
    """A stack of only Flatten, Linear and ReLU, with cross-entropy or squared error, without autograd."""

    def __init__(self, module: nn.Module, loss: Loss, make: Make | None = None, precision: str = "fp32") -> None:
        """ValueError if `module` or `loss` is none of those, or for an unknown precision."""
        super().__init__(module, make)
        denses = dense_layers(self, translate(module))
        if denses is None or loss not in (cross_entropy, squared_error):
            raise ValueError(f"{type(module).__name__} with {loss} is no perceptron; use model.stacked.Stacked")
        self.loss = loss
        self.denses = denses
        self.products = product_type(precision)
        self.small = small_layers(denses) if self.products is None else None
        self._num_gradients = 0
        self._verified: set[tuple[int, int]] = set()  # (M, B) at which the compiled form gave the same bits

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
        layers = self.small if self._compiles(theta, x) else None
        if layers is None:
            return self._tensor_gradient(theta, stats, x, y, weight)
        self._num_gradients += 1
        if self._num_gradients < COMPILE_AFTER:
            return self._tensor_gradient(theta, stats, x, y, weight)
        found, shape = self._compiled_gradient(layers, theta, stats, x, y, weight), (x.shape[0], x.shape[1])
        if shape in self._verified:
            return found
        expected = self._tensor_gradient(theta, stats, x, y, weight)
        if torch.equal(found.grad, expected.grad) and torch.equal(found.loss, expected.loss):
            self._verified.add(shape)
        else:
            self.small = None  # this processor rounds otherwise, and no bit may depend on when a run was resumed
        return expected

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
        return Gradient(torch.cat(parts, 1), loss, stats)  # which makes parts of a lower type `full` ones

    def _compiles(self, theta: Tensor, x: Tensor) -> bool:
        """Whether layers, batch and types are those of the compiled form."""
        if self.small is None or not LEAST_BATCH <= x.shape[1] <= MOST:
            return False
        plain = type(theta) is Tensor and type(x) is Tensor and theta.device.type == "cpu"
        return plain and theta.dtype == x.dtype == torch.float32

    def _compiled_gradient(
        self, layers: np.ndarray, theta: Tensor, stats: Tensor, x: Tensor, y: Tensor, weight: Tensor | None
    ) -> Gradient:
        from fedcomp.model.batched.compiled import mlp_numba as kernels

        (num_clients, batch), last = x.shape[:2], self.denses[-1]
        held = np.empty((num_clients, int(layers[:, 0].sum()) * kernels.num_places(batch)), np.float32)
        parameters, inputs = theta.contiguous().numpy(), x.contiguous().numpy()
        z = theta.new_empty(num_clients, last.num_out, batch)
        kernels.forward(parameters, inputs, layers, held, z.numpy())
        if self.loss is cross_entropy and weight is None and not last.relu:
            log_p, loss = torch.log_softmax(z, 1), theta.new_empty(num_clients)
            g = torch.exp(log_p, out=z)
            kernels.cross_entropy(log_p.numpy(), g.numpy(), y.contiguous().numpy(), loss.numpy())
        else:
            loss, g = output_gradient(self.loss, last.relu, z, y, weight)
        grad = theta.new_empty(num_clients, self.dim)
        kernels.backward(parameters, inputs, layers, held, g.contiguous().numpy(), grad.numpy())
        return Gradient(grad, loss, stats)

    def fused_sgd(self, x: Tensor, y: Tensor, batch_size: int) -> TrainFused | None:
        """As `contract.FusesSgd`: on a GPU, for one small hidden layer with ReLU, cross-entropy and float32."""
        if len(self.denses) != 2 or not has_triton(x.device) or self.products is not None:
            return None
        first, second = self.denses
        classes = self.loss is cross_entropy and y.dim() == 1 and x.dim() == 2
        biases = (first.bias is None) == (second.bias is None)
        if not (classes and biases and first.relu and not second.relu and x.dtype in (torch.uint8, torch.float32)):
            return None
        from fedcomp.model.batched import mlp_triton

        constants = mlp_triton.sizes(first.num_in, first.num_out, second.num_out, batch_size)
        if constants is None:
            return None
        places = first.weight, first.bias, second.weight, second.bias
        return partial(mlp_triton.train, (x, y), constants, places)

    def outputs(self, theta: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        """[B, O] outputs of one model (theta [D]) on x [B, ...]."""
        return self.outputs_of_rows(theta[None], x)[0]

    @torch.no_grad()
    def outputs_of_rows(self, theta: Tensor, x: Tensor) -> Tensor:
        """[M, B, O] outputs of each row of theta [M, D] on x [B, ...]."""
        views = dense_views(self.denses, theta)
        *_, z_MOB = dense_forward(self.denses, views, x.to(theta.dtype).flatten(1).expand(theta.shape[0], -1, -1))
        return z_MOB.mT


Views = list[tuple[Tensor, Tensor | None]]
"""Weights [M, out, in] and biases [M, 1, out] of each layer."""


def dense_views(denses: Sequence[DenseLayer], theta: Tensor) -> Views:
    """The layers' weights and biases in the rows theta [M, D]."""
    return [dense.views(theta) for dense in denses]


def dense_forward(denses: Sequence[DenseLayer], views: Views, x: Tensor) -> list[Tensor]:
    """x [M, B, F], the values of each hidden layer [M, B, width], the outputs [M, O, B]."""
    values = [x]
    for dense, (weights, bias) in zip(denses, views):
        if dense is denses[-1]:
            x_transposed = x.mT
            x = torch.bmm(weights, x_transposed) if bias is None else torch.baddbmm(bias.mT, weights, x_transposed)
        else:
            x = torch.bmm(x, weights.mT) if bias is None else torch.baddbmm(bias, x, weights.mT)
        if dense.relu:
            x.relu_()
        values.append(x)
    return values


def dense_backward(
    denses: Sequence[DenseLayer],
    views: Views,
    values: list[Tensor],
    g_MOB: Tensor,
    lower: torch.dtype | None = None,
) -> list[Tensor]:
    """Gradients of the layers' tensors, each [M, size], in the order of the row.

    Args:
        values: x and what each hidden layer gave. g_MOB: the gradient at the outputs, before a last ReLU.
        lower: the type of the products, if another one.
    """
    num_clients, full = g_MOB.shape[0], g_MOB.dtype
    parts: list[Tensor] = []  # last layer first
    for place in range(len(views) - 1, -1, -1):
        weights, bias = views[place]
        if bias is not None:
            parts.append(g_MOB.sum(2) if lower is None else g_MOB.sum(2, dtype=full))
        if lower is not None:
            g_MOB = g_MOB.to(lower)
        parts.append(torch.bmm(g_MOB, values[place]).view(num_clients, -1))
        if place > 0:
            g = torch.bmm(g_MOB.mT, weights)
            if denses[place - 1].relu:
                g = torch.ops.aten.threshold_backward.default(g, values[place], 0)
            g_MOB = g.mT
    parts.reverse()
    return parts


def output_gradient(loss: Loss, relu: bool, z_MOB: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Each client's mean loss [M] and its gradient [M, O, B] before the last ReLU. Overwrites the outputs `z_MOB`."""
    positive = z_MOB > 0 if relu else None
    if loss is cross_entropy:
        classes = y.unsqueeze(1)
        log_p = torch.log_softmax(z_MOB, 1)
        picked, sign = log_p.gather(1, classes), -1.0
        g = log_p.exp_().scatter_(1, classes, -1.0, reduce="add")
    else:
        error = z_MOB.sub_(y.to(z_MOB.dtype).mT)
        picked, sign = error.square().mean(1, keepdim=True), 1.0
        g = error.mul_(2 / error.shape[1])
    if weight is None:
        share = 1.0 / y.shape[1]
        mean, g = picked.sum((1, 2)).mul_(sign * share), g.mul_(share)
    else:
        weight = weight.to(g.dtype)
        shares = (weight / weight.sum(1, keepdim=True).clamp(min=1)).unsqueeze(1)
        mean, g = (picked * shares).sum((1, 2)).mul_(sign), g.mul_(shares)
    return mean, g if positive is None else g * positive


def products_are_chains() -> bool:
    """Whether torch's products of these sizes are known to round as the compiled ones: MKL's do with AVX-512."""
    return torch.backends.mkl.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def small_layers(denses: Sequence[DenseLayer]) -> np.ndarray | None:
    """The layers as `mlp_numba.py` takes them; None where one is too wide or too narrow, or bits would change."""
    fits = all(LEAST_IN <= dense.num_in <= MOST and LEAST_OUT <= dense.num_out <= MOST for dense in denses)
    if not fits or not products_are_chains():
        return None
    return dense_rows(denses)


def dense_rows(denses: Sequence[DenseLayer]) -> np.ndarray:
    """The layers as `dense_numba.py` takes them."""
    rows = [(one.num_in, one.num_out, one.weight, -1 if one.bias is None else one.bias, one.relu) for one in denses]
    return np.array(rows, np.int64)


def dense_layers(flat: Flat, chain: list[Layer] | None, expected: int = 0) -> tuple[DenseLayer, ...] | None:
    """The chain as dense layers whose parameters follow one another in the row, from tensor `expected` to the last one.

    None where it is anything else.
    """
    if chain is None:
        return None
    starts = [sum(flat.layers[:place]) for place in range(len(flat.layers))]
    denses: list[DenseLayer] = []
    for layer in chain:
        if isinstance(layer, Linear) and layer.weight == expected and layer.bias in (None, expected + 1):
            num_out, num_in = flat.shapes[layer.weight]
            bias = None if layer.bias is None else starts[layer.bias]
            denses.append(DenseLayer(num_in, num_out, starts[layer.weight], bias, relu=False))
            expected += 1 if layer.bias is None else 2
        elif isinstance(layer, Activation) and layer.function in _RELU and denses:
            last = denses[-1]
            denses[-1] = DenseLayer(last.num_in, last.num_out, last.weight, last.bias, relu=True)
        elif not (isinstance(layer, Flatten) and not denses):
            return None
    return tuple(denses) if denses and expected == len(flat.layers) else None
