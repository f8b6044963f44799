"""Local gradient descent: every step along the gradient over all of the client's samples.

What methods need that reach the exact optimum: with mini-batches they stop at a floor of their noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedcomp.client.contract import Batching, GradFn, LocalData
from fedcomp.client.full_gradient import full_gradient, gather_once
from fedcomp.client.solver import LocalSolver, Position
from fedcomp.core.ranges import Whole, Within
from fedcomp.model.contract import Gradient


@dataclass(frozen=True, kw_only=True)
class GD(LocalSolver):
    """theta <- theta - lr (grad f_i(theta) + weight_decay theta), `steps` times.

    `batch_size` changes results by rounding only, and, with dropout, by which masks are drawn.
    """

    fixed_samples: ClassVar[bool] = True

    batch_size: Annotated[int, Whole()] = 256
    steps: Annotated[int, Whole()] = 1
    weight_decay: Annotated[float, Within("[0, inf)")] = 0.0

    @property
    def batching(self) -> Batching:
        """As many steps for each client, however many samples it has."""
        return Batching(self.batch_size, steps=self.steps)

    def gradients(self, data: LocalData, at: Position, grad_fn: GradFn) -> Iterator[Gradient]:
        """Of all samples, with the penalty's, as `LocalSolver.gradients`."""
        held = gather_once(data, self.batch_size)
        for step in range(self.steps):
            samples = held if held is not None else data.samples(self.batch_size)
            whole = full_gradient(samples, data.num_samples, at.theta, at.stats, step, grad_fn)
            if self.weight_decay:
                whole.grad.add_(at.theta, alpha=self.weight_decay)
            yield whole
