"""Dense layers of M clients, forwards and backwards by hand: autograd would cost more than small layers' arithmetic.

z_l = a_{l-1} W_l^T + b_l, a_l = relu(z_l) or z_l; backwards g = dL/dz_l gives dW_l = g^T a_{l-1}, db_l = sum_B g and
dL/da_{l-1} = g W_l. Logits are held as [M, O, B]: torch's softmax over a middle axis is four times as fast as over a
last axis of ten.

Shape legend: M clients, B batch, F features, O outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcomp.model.batched.layers import RELU, Activation, Flatten, Layer, Linear
from fedcomp.model.contract import Model
from fedcomp.model.loss import Loss, cross_entropy


@dataclass(frozen=True)
class DenseLayer:
    """One linear layer: its sizes, where weight and bias begin in a client's parameters, and whether ReLU follows."""

    num_in: int
    num_out: int
    weight: int
    bias: int | None
    relu: bool

    def views(self, theta: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weights [M, out, in] and biases [M, 1, out] in rows whose entries lie side by side: no split, no copy."""
        num_clients, row, base = theta.shape[0], theta.stride(0), theta.storage_offset()
        sizes = (num_clients, self.num_out, self.num_in)
        weights = theta.as_strided(sizes, (row, self.num_in, 1), base + self.weight)
        if self.bias is None:
            return weights, None
        return weights, theta.as_strided((num_clients, 1, self.num_out), (row, 0, 1), base + self.bias)


Views = list[tuple[Tensor, Tensor | None]]
"""Weights [M, out, in] and biases [M, 1, out] of each layer."""


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
    denses: Sequence[DenseLayer], views: Views, values: list[Tensor], g_MOB: Tensor, lower: torch.dtype | None
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


def dense_rows(denses: Sequence[DenseLayer]) -> np.ndarray:
    """The layers as `dense_numba.py` takes them."""
    rows = [(one.num_in, one.num_out, one.weight, -1 if one.bias is None else one.bias, one.relu) for one in denses]
    return np.array(rows, np.int64)


def dense_layers(flat: Model, chain: list[Layer] | None, expected: int = 0) -> tuple[DenseLayer, ...] | None:
    """The chain as dense layers whose parameters follow one another in the row, from tensor `expected` to the last one.

    None where it is anything else, and where a tensor is frozen.
    """
    if chain is None or flat.frozen:
        return None
    denses: list[DenseLayer] = []
    for layer in chain:
        if isinstance(layer, Linear) and layer.weight == expected and layer.bias in (None, expected + 1):
            num_out, num_in = flat.shapes[layer.weight]
            bias = None if layer.bias is None else flat.starts[layer.bias]
            denses.append(DenseLayer(num_in, num_out, flat.starts[layer.weight], bias, relu=False))
            expected += 1 if layer.bias is None else 2
        elif isinstance(layer, Activation) and layer.function in RELU and denses:
            denses[-1] = replace(denses[-1], relu=True)
        elif not (isinstance(layer, Flatten) and not denses):
            return None
    return tuple(denses) if denses and expected == len(flat.layers) else None
