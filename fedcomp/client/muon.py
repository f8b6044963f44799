"""Local Muon: steps along orthogonalised momenta of weight matrices; AdamW for everything else.

B. Therien et al., "MuLoCo: Muon is a practical inner optimizer for DiLoCo", arXiv:2505.23725, whose program gives the
constants; Muon is K. Jordan's (2024). For a weight tensor as a matrix W of m outputs by n inputs, with gradient G:

    M <- mu M + G;    O = NS(M);    W <- (1 - lr wd) W - lr sqrt(m / n) O        ("spectral_norm")
                                    W <- (1 - lr wd) W - lr 0.2 sqrt(max(m, n)) O    ("rms_norm")

NS divides M by its Frobenius norm and applies five Newton-Schulz polynomials x <- a x + b x^3 + c x^5 to its singular
values, which end near 1. There is no Nesterov term, and a step does not depend on the gradient's scale. Vectors,
embeddings and the last `skip_last` matrices (the head) take AdamW's steps with a learning rate of their own. The paper
computes NS in bfloat16; here it has the dtype of the clients. Convolutions are matrices of outputs by fan-in.

Shape legend: M clients of a chunk, A of them still at work, D parameters; of a matrix m outputs, n inputs.
"""

import functools
import logging
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcomp.client.contract import LocalData
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.client.solver import add_scaled_
from fedcomp.core.parameter_layout import WEIGHT, ParameterSubset, ParameterTensor
from fedcomp.core.ranges import Whole, Within

log = logging.getLogger("fedcomp")

POLYNOMIALS = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""(a, b, c) of the five steps of NS; singular values of Gaussian 64 x 96 matrices end in [0.978, 1.032]."""

Share = Annotated[float, Within("[0, 1)")]


@dataclass(frozen=True, kw_only=True)
class Muon(MinibatchSolver):
    """Muon for weight matrices, AdamW for the rest; fresh memories every round unless it is given earlier ones.

    Attributes:
        momentum: mu. weight_decay: wd of either part. adam_lr: of AdamW; its schedule is that of `lr`.
        tensors: the model's parameter tensors, which `on` takes from the clients.
    """

    momentum: Share = 0.9
    scale: Literal["spectral_norm", "rms_norm"] = "spectral_norm"
    weight_decay: Annotated[float, Within("[0, inf)")] = 0.0
    skip_last: Annotated[int, Whole(0, "a number of weight matrices")] = 1
    adam_lr: Annotated[float, Within("(0, inf)")] = 0.003
    beta1: Share = 0.9
    beta2: Share = 0.99
    eps: Annotated[float, Within("(0, inf)")] = 1e-8
    tensors: tuple[ParameterTensor, ...] = ()

    def check_tensors(self, tensors: tuple[ParameterTensor, ...]) -> None:
        """Warn where nothing is left for Muon."""
        if not replace(self, tensors=tensors).matrices:
            log.warning(
                "client=muon is AdamW here: the model has no weight matrices but the last client.skip_last=%d, which "
                "AdamW trains",
                self.skip_last,
            )

    @functools.cached_property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """(first column, m, n) of each matrix that Muon trains."""
        found, first = [], 0
        for tensor in self.tensors:
            if tensor.kind == WEIGHT:
                found.append((first, tensor.size // tensor.fan_in, tensor.fan_in))
            first += tensor.size
        return tuple(found[: max(0, len(found) - self.skip_last)])

    @functools.cached_property
    def rest(self) -> ParameterSubset:
        """The columns that AdamW trains."""
        ends = [0, *(end for first, m, n in self.matrices for end in (first, first + m * n))]
        ends.append(sum(tensor.size for tensor in self.tensors))
        runs = tuple((first, end) for first, end in zip(ends[::2], ends[1::2], strict=True) if end > first)
        return ParameterSubset(ends[-1], runs, tuple(end - first for first, end in runs))

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        """[M, D] momenta of matrices and first moments of the rest; [M, D] second moments, 0 for matrices."""
        return theta.new_zeros(theta.shape), theta.new_zeros(theta.shape)

    def on(self, data: LocalData) -> "Muon":
        return replace(self, tensors=data.tensors)

    def step_coefficients(self, steps: float | Tensor, lr: float) -> tuple[float | Tensor, ...]:
        """-lr, 1 - lr wd; AdamW's -lr' / (1 - beta1^t), 1 - beta2^t, 1 - lr' wd with t = steps + 1."""
        adam_lr = lr / self.lr * self.adam_lr
        rate, scale2 = -adam_lr / (1 - self.beta1 ** (steps + 1)), 1 - self.beta2 ** (steps + 1)
        return -lr, 1 - lr * self.weight_decay, rate, scale2, 1 - adam_lr * self.weight_decay

    def update(
        self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...], coefficients: tuple[float | Tensor, ...]
    ) -> None:
        (first, second), (rate, shrink, adam_rate, scale2, adam_shrink) = slots, coefficients
        for start, m, n in self.matrices:
            columns = slice(start, start + m * n)
            momentum = first[:, columns].mul_(self.momentum).add_(grad[:, columns])
            step = orthogonalised(momentum.unflatten(1, (m, n))).flatten(1)
            size = (m / n) ** 0.5 if self.scale == "spectral_norm" else 0.2 * max(m, n) ** 0.5
            add_scaled_(theta[:, columns].mul_(shrink), step.mul_(size), rate)
        for start, end in self.rest.runs:
            own, moment, square = theta[:, start:end], first[:, start:end], second[:, start:end]
            moment.lerp_(grad[:, start:end], 1 - self.beta1)
            square.mul_(self.beta2).addcmul_(grad[:, start:end], grad[:, start:end], value=1 - self.beta2)
            root = (square / scale2).sqrt_().add_(self.eps)
            add_scaled_(own.mul_(adam_shrink), moment / root, adam_rate)


def orthogonalised(matrices: Tensor) -> Tensor:
    """NS of matrices [A, m, n]: their singular vectors with singular values near 1; zero stays zero."""
    size = torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=torch.finfo(matrices.dtype).tiny)
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices) / size
    for a, b, c in POLYNOMIALS:
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.mT if tall else x
