"""Small perceptrons in float32 on a CPU, compiled but for the softmax: gradients, and steps of plain SGD.

All bits are those of the tensor code in `mlp.py`: the products are chains of fused multiply-adds, as MKL's are
with AVX-512 at these sizes, and the softmax between forward and backward pass is torch's own.

Shape legend: M clients, D parameters, B batch, n samples, F features, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.model.batched.backward.dense import DenseLayer, dense_rows, output_gradient
from fedcomp.model.loss import Loss, cross_entropy

LEAST_IN, LEAST_OUT, LEAST_BATCH, MOST = 16, 10, 8, 128
"""Sizes of layers and batches that are compiled: up to `MOST`, MKL's products are chains of fused multiply-adds."""


def products_are_chains() -> bool:
    """Whether torch's products of these sizes are known to round as the compiled ones: MKL's do with AVX-512."""
    return torch.backends.mkl.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def compiled_mlp(denses: Sequence[DenseLayer], loss: Loss) -> CompiledMlp | None:
    """The compiled form; None where a layer is too wide or too narrow, or bits would change."""
    fits = all(LEAST_IN <= dense.num_in <= MOST and LEAST_OUT <= dense.num_out <= MOST for dense in denses)
    return CompiledMlp(denses, loss) if fits and products_are_chains() else None


@dataclass(frozen=True)
class SgdOnSamples:
    """What the steps of a plain SGD loop share: theta <- theta - rate (gradient + decay theta).

    Attributes:
        samples: [n, F] raw, uint8 or float32. offset, scale: networks see offset + scale * raw, [F] or [1].
        rate, decay: of a step.
    """

    samples: Tensor
    offset: Tensor
    scale: Tensor
    rate: float
    decay: float

    def inputs(self, numbers: Tensor) -> Tensor:
        """[M, B, F] what networks see of the samples `numbers` [M, B]."""
        raw = self.samples.index_select(0, numbers.flatten()).view(*numbers.shape, -1)
        return torch.addcmul(self.offset, raw.to(torch.float32), self.scale)

    def descend(self, theta: Tensor, grad: Tensor) -> None:
        """One step in place, given the gradient [M, D]."""
        direction = grad.add(theta, alpha=self.decay) if self.decay else grad
        theta.add_(direction, alpha=-self.rate)


class CompiledMlp:
    """Gradients of a perceptron, by compiled loops over the clients."""

    def __init__(self, denses: Sequence[DenseLayer], loss: Loss) -> None:
        self.loss, self.last = loss, denses[-1]
        self.layers = dense_rows(denses)
        self._num_inputs = sum(dense.num_in for dense in denses)

    def takes(self, theta: Tensor, batch: int) -> bool:
        """Whether rows theta [M, D] and batches of so many samples are those of the compiled form."""
        plain = type(theta) is Tensor and theta.device.type == "cpu" and theta.dtype == torch.float32
        return plain and LEAST_BATCH <= batch <= MOST

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Gradient [M, D] of each client's mean loss over its batch, and that loss [M]; x [M, B, F]."""
        from fedcomp.model.batched.compiled import mlp_numba as kernels

        theta_MD, x_MBF, grad = theta.contiguous().numpy(), x.contiguous().numpy(), torch.empty(theta.shape)
        loss = torch.zeros(theta.shape[0])
        inputs, z_MOB = self._buffers(x.shape[0], x.shape[1])
        kernels.forward(theta_MD, x_MBF, self.layers, inputs, z_MOB.numpy())
        g_MOB = self._output_gradient(z_MOB, y, weight, loss)
        kernels.backward(theta_MD, x_MBF, self.layers, inputs, g_MOB, grad.numpy())
        return grad, loss

    def _buffers(self, num_clients: int, batch: int) -> tuple[np.ndarray, Tensor]:
        """Buffers for the inputs of all layers, and for the outputs [M, O, B]."""
        from fedcomp.model.batched.compiled import mlp_numba as kernels

        inputs = np.empty((num_clients, self._num_inputs * kernels.num_places(batch)), np.float32)
        return inputs, torch.empty(num_clients, self.last.num_out, batch)

    def _output_gradient(self, z_MOB: Tensor, y: Tensor, weight: Tensor | None, loss: Tensor) -> np.ndarray:
        """`dense.output_gradient`, with fewer calls where it can; adds to the loss [M], overwrites z."""
        from fedcomp.model.batched.compiled import mlp_numba as kernels

        if self.loss is cross_entropy and weight is None and not self.last.relu:
            log_p = torch.log_softmax(z_MOB, 1)
            g_MOB = torch.exp(log_p, out=z_MOB).numpy()
            kernels.cross_entropy(log_p.numpy(), g_MOB, y.contiguous().numpy(), loss.numpy())
            return g_MOB
        own, g = output_gradient(self.loss, self.last.relu, z_MOB, y, weight)
        loss += own
        return g.contiguous().numpy()

    def descend(
        self, sgd: SgdOnSamples, theta: Tensor, total: Tensor, numbers: Tensor, y: Tensor, weight: Tensor | None
    ) -> None:
        """Steps of theta [M, D], in place, on the samples `numbers` [S, M, B]; adds their losses to total [M].

        y: targets [S, M, B] or [S, M, B, O]. weight: [S, M, B], for each step as in `contract.Model`.
        """
        from fedcomp.model.batched.compiled import mlp_numba as kernels

        (_, num_clients, batch), num_features = numbers.shape, sgd.samples.shape[1]
        normalisation = (part.expand(num_features).contiguous().numpy() for part in (sgd.offset, sgd.scale))
        sources = sgd.samples.numpy(), *normalisation
        inputs, z_MOB = self._buffers(num_clients, batch)
        theta_MD, outputs = theta.numpy(), z_MOB.numpy()
        x_MBF = np.empty((num_clients, batch, num_features), np.float32)
        grad, rates = np.empty_like(theta_MD), (np.float32(sgd.rate), np.float32(sgd.decay))
        for step, chosen in enumerate(numbers.contiguous().numpy()):
            kernels.forward_samples(theta_MD, *sources, chosen, self.layers, x_MBF, inputs, outputs)
            g_MOB = self._output_gradient(z_MOB, y[step], None if weight is None else weight[step], total)
            kernels.descend(theta_MD, x_MBF, self.layers, inputs, g_MOB, grad, *rates)
