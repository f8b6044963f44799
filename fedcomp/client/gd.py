"""Local gradient descent: every step along the gradient over all of the client's samples.

What methods need that reach the exact optimum: with mini-batches they stop at a floor of their noise.

Shape legend: M clients of a chunk, D parameters, C running statistics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcomp.client.contract import Batching, GradFn, LocalData, LocalResult
from fedcomp.client.full_gradient import full_gradient, gather_once
from fedcomp.client.shifted_gradient import shifted_gradient
from fedcomp.client.solver import LocalSolver, clip
from fedcomp.core.validate import check_count, check_interval


@dataclass(frozen=True, kw_only=True)
class GD(LocalSolver):
    """theta <- theta - lr (grad f_i(theta) + weight_decay theta), `steps` times.

    Attributes:
        steps: gradients a round. weight_decay: L2 penalty's factor, at least 0.
        batch_size: samples of a client whose gradients are computed at once; changes results by rounding only, and,
            with dropout, by which masks are drawn.
    """

    fixed_samples: ClassVar[bool] = True

    batch_size: int = 256
    steps: int = 1
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("client.steps", self.steps)
        check_interval("client.weight_decay", self.weight_decay, "[0, inf)")

    @property
    def batching(self) -> Batching:
        """As many steps for each client, however many samples it has."""
        return Batching(self.batch_size, steps=self.steps)

    def run(
        self,
        data: LocalData,
        theta: Tensor,
        stats: Tensor,
        progress: Iterable[int],
        grad_fn: GradFn | None = None,
        memory: tuple[Tensor, ...] = (),
    ) -> LocalResult:
        """As `LocalSolver.run`."""
        lr = self.learning_rate(progress)
        if self.proximal:
            grad_fn = shifted_gradient(data, theta * -self.proximal, self.proximal, grad_fn)
        grad_fn = grad_fn or data.gradient
        theta, loss = theta.clone(memory_format=torch.contiguous_format), theta.new_zeros(theta.shape[0])
        held = gather_once(data, self.batch_size)
        for step in range(self.steps):
            samples = held if held is not None else data.samples(self.batch_size)
            whole = full_gradient(samples, data.num_samples, theta, stats, step, grad_fn)
            grad = whole.grad.add_(theta, alpha=self.weight_decay) if self.weight_decay else whole.grad
            theta.sub_(grad if self.clip_norm is None else clip(grad, self.clip_norm), alpha=lr)
            loss += whole.loss
            stats = whole.stats
        return LocalResult(theta, stats.clone(), loss / self.steps)
