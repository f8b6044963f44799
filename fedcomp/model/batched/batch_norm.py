"""BatchNorm of M clients at once, with statistics of each client's real samples only.

Shape legend: M clients, B batch, C channels, F features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedcomp.model.batched.layers import Pass


@dataclass(frozen=True)
class BatchNorm:
    """gamma (x - mean) / sqrt(var + eps) + beta by channel and client, as `nn.BatchNorm1d` and `2d` do.

    While training, the running statistics become (1 - momentum) old + momentum batch, with the unbiased batch
    variance over the n values of the client's real samples; n = 1 counts as variance 0, n = 0 changes nothing.

    Attributes:
        weight, bias: places of gamma and beta in `Pass.parameters`, or None.
        mean, var: places of the running statistics in `Pass.statistics`.
        eps, momentum: as in torch.
    """

    weight: int | None
    bias: int | None
    mean: int
    var: int
    eps: float
    momentum: float

    def __call__(self, x: Tensor, state: Pass) -> Tensor:
        if x.dim() == 4:
            return self._normalise(x, state)
        num_clients, batch, _ = x.shape
        y = self._normalise(x.transpose(0, 1).reshape(batch, -1), state)
        return y.view(batch, num_clients, -1).transpose(0, 1)

    def _normalise(self, x: Tensor, state: Pass) -> Tensor:
        """x: (B, M*C) or (B, M*C, H, W)."""
        gamma = None if self.weight is None else state.parameters[self.weight].flatten()
        beta = None if self.bias is None else state.parameters[self.bias].flatten()
        # Copies: F.batch_norm updates them in place, and the caller's statistics stay as they are.
        mean = state.statistics[self.mean].clone(memory_format=torch.contiguous_format).flatten()
        var = state.statistics[self.var].clone(memory_format=torch.contiguous_format).flatten()
        if state.training and (state.weight is not None or x.numel() == x.shape[1]):
            given = x.dtype
            y, mean, var = by_real_samples(x.to(mean.dtype), mean, var, state.weight, self.eps, self.momentum)
            scale = 1.0 if gamma is None else channels(gamma, x)
            y = (y * scale if beta is None else y * scale + channels(beta, x)).to(given)
        else:
            y = functional.batch_norm(x, mean, var, gamma, beta, state.training, self.momentum, self.eps)
        if state.training:
            state.statistics[self.mean] = mean.view(state.num_clients, -1)
            state.statistics[self.var] = var.view(state.num_clients, -1)
        return y


def by_real_samples(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, eps: float, momentum: float
) -> tuple[Tensor, Tensor, Tensor]:
    """x normalised by its real samples, and the new running mean and variance.

    Args:
        x: (B, M*C, ...). mean, var: [M*C] running statistics. weight: [M, B] as in `Pass`; None: all samples are real.
        eps: as in torch. momentum: as in torch.
    """
    real = x.new_ones(x.shape[:2]) if weight is None else weight.t().repeat_interleave(x.shape[1] // len(weight), 1)
    values = real.sum(0) * x[0, 0].numel()
    real = real.reshape(real.shape + (1,) * (x.dim() - 2))
    dims = [dim for dim in range(x.dim()) if dim != 1]
    count = values.clamp(min=1)
    batch_mean = (x * real).sum(dims) / count
    centred = x - channels(batch_mean, x)
    batch_var = (centred.square() * real).sum(dims) / count
    with torch.no_grad():
        rate = momentum * (values > 0).to(x.dtype)
        unbiased = batch_var * (count / (count - 1).clamp(min=1))
        mean = mean + rate * (batch_mean - mean)
        var = var + rate * (unbiased - var)
    return centred * channels(torch.rsqrt(batch_var + eps), x), mean, var


def channels(value: Tensor, x: Tensor) -> Tensor:
    """[M*C] to a shape that multiplies x channel by channel."""
    return value.view((1, -1) + (1,) * (x.dim() - 2))
