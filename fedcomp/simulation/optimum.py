"""The exact optimum of a linear regression, so that curves can show f - f*.

Shape legend: n samples, N clients, P inputs of the linear layer (features, and 1 for a bias), O outputs, D = P O
parameters, K models.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedcomp.dataset.contract import Dataset, Samples
from fedcomp.model.contract import AnyModel
from fedcomp.simulation.chunks.client_data import ClientShards

MOST_INPUTS = 2048
"""P beyond which the normal equations are too large to solve during set-up."""


@dataclass(frozen=True)
class LeastSquares:
    """f(theta) = sum_n s_n (1/L_n) sum_i (1/O) ||x_i W - y_i||^2 over the training data, with s_n the clients' shares.

    Attributes:
        hessian: [P, P] float64 H = sum_i omega_i x_i x_i^T, omega_i = s_n / L_n; half of the Hessian for each output.
        solution: [P, O] float64 W*, the shortest of them where there are many.
        minimum: f*.
        bias: whether the last input is the bias.
    """

    hessian: Tensor
    solution: Tensor
    minimum: float
    bias: bool

    @property
    def theta(self) -> Tensor:
        """[D] float64 theta*, as the model's parameters lie."""
        weights = self.solution[:-1] if self.bias else self.solution
        return torch.cat((weights.t().flatten(), self.solution[-1] if self.bias else self.solution[:0, 0]))

    def excess(self, theta: Tensor) -> Tensor:
        """[K] float64 f(theta) - f* of models theta [K, D]: the quadratic form, so that nothing cancels."""
        num_outputs = self.solution.shape[1]
        theta = theta.to(torch.float64)
        weights = theta[:, : theta.shape[1] - (num_outputs if self.bias else 0)]
        away = weights.unflatten(1, (num_outputs, -1)).mT
        if self.bias:
            away = torch.cat((away, theta[:, None, -num_outputs:]), 1)
        away = away - self.solution.to(theta.device, non_blocking=True)
        return (away * (self.hessian.to(theta.device, non_blocking=True) @ away)).sum((1, 2)) / num_outputs


def least_squares(model: AnyModel, dataset: Dataset, shards: ClientShards, importance: Tensor) -> LeastSquares | None:
    """The optimum of the clients' objective, by least squares in float64; None unless the model is one linear layer.

    Args:
        importance: [N] how much each client counts; s_n is its share.
    """
    linear = _linear(model.module)
    if linear is None or dataset.task != "regression" or linear.in_features >= MOST_INPUTS:
        return None
    sizes = torch.from_numpy(shards.sizes)
    order = shards.order.cpu()
    train = Samples(dataset.train.x[shards.order], dataset.train.y[shards.order])
    assert len(order) == int(sizes.sum())
    x = torch.cat([part.flatten(1).to("cpu", torch.float64) for part in dataset.inputs(train)])
    y = train.y.to("cpu", torch.float64)
    if linear.bias is not None:
        x = torch.cat((x, torch.ones(len(x), 1, dtype=torch.float64)), 1)
    omega = (importance / importance.sum() / sizes).repeat_interleave(sizes)[:, None]
    # numpy's solver, since torch's for rank-deficient systems exists on CPUs only in some builds.
    solution = torch.from_numpy(np.linalg.lstsq((omega.sqrt() * x).numpy(), (omega.sqrt() * y).numpy(), rcond=None)[0])
    minimum = float((omega * (x @ solution - y).square()).sum() / y.shape[1])
    return LeastSquares(x.t() @ (omega * x), solution, minimum, linear.bias is not None)


def _linear(module: nn.Module) -> nn.Linear | None:
    """The layer of a module that is one trained linear layer behind at most a Flatten, else None."""
    leaves = [part for part in module.modules() if next(part.children(), None) is None]
    rest = [part for part in leaves if not isinstance(part, nn.Flatten)]
    if not isinstance(module, nn.Linear | nn.Sequential) or len(rest) != 1:
        return None
    only = rest[0]
    trained = all(parameter.requires_grad for parameter in only.parameters())
    return only if type(only) is nn.Linear and trained else None
