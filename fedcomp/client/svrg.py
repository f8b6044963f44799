"""Local SVRG: stochastic steps whose variance a full local gradient takes away.

M. Rostami, S. S. Kia, "Federated learning using variance reduced stochastic gradient for probabilistically activated
agents", ACC 2023, algorithm 1, after R. Johnson, T. Zhang, "Accelerating stochastic gradient descent using predictive
variance reduction", NIPS 2013, option I. In a round an active agent n with L_n component losses f_{n,i} does S times

    w~ <- w;  mu~ <- (1/L_n) sum_i grad f_{n,i}(w~)
    M times, i ~ U{1, ..., L_n}:  w <- w - delta (grad f_{n,i}(w) - grad f_{n,i}(w~) + mu~)

A component is a sample; with batch_size > 1 the mean over as many, drawn with replacement. The direction is unbiased,
with variance 0 at w = w~, so that M = 1 makes S plain gradient steps. A dataset that augments is refused: mu~ would be
of samples as they are, and the steps of changed ones. The cost is S (L_n + 2 M batch_size) component
gradients, against M S batch_size of as many steps of SGD.

FedAvg with this solver, weights 1/(N p_n) and activations by coin **is** the paper's method (`algorithm=fedavg_svrg`).
Two of its claims do not hold:
    O(1/K) to the optimum (lemma V.1) bounds the distance to each agent's own minimiser. Where the f_n differ, local
    steps at the common optimum do not vanish, and for p_n < 1 the activation leaves a noise floor whose aggregate
    variance is (1/N^2) sum_n (1/p_n - 1) ||Delta_n(theta*)||^2 (`tests/experiments/test_fedavg_svrg.py`);
    O(K^(-2/3)) for delta = K^(-epsilon): the last term of (8) sums 1/p over K rounds and is O(delta), not O(delta/K),
    so that the best is O(K^(-1/2)), the rate of the method that it is compared with.

The gradient hook is asked at both points with the same batch, the same running statistics and the same step, and so
BatchNorm does the same in both. Running statistics move with the steps alone, as in SGD. BatchNorm makes a batch's
gradient depend on who else is in it: mu~ is then no longer exactly the mean of what it replaces.

Shape legend: M clients of a chunk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from fedcomp.client.contract import Batching, GradFn, LocalData
from fedcomp.client.full_gradient import full_gradient, gather_once
from fedcomp.client.solver import LocalSolver, Position
from fedcomp.core.ranges import Whole
from fedcomp.model.contract import Batch, Gradient


@dataclass(frozen=True, kw_only=True)
class Svrg(LocalSolver):
    """S snapshots with M inner steps each.

    `snapshot_batch_size` changes results by rounding only, and, with dropout, by which masks are drawn.
    """

    fixed_samples: ClassVar[bool] = True

    batch_size: Annotated[int, Whole()] = 1
    snapshots: Annotated[int, Whole()] = 5
    inner_steps: Annotated[int, Whole()] = 2
    snapshot_batch_size: Annotated[int, Whole()] = 256

    @property
    def batching(self) -> Batching:
        """S M draws with replacement, for any number of samples."""
        return Batching(self.batch_size, steps=self.snapshots * self.inner_steps, replacement=True)

    @property
    def most_samples(self) -> int:
        """Those of a snapshot."""
        return max(self.batch_size, self.snapshot_batch_size)

    def hook(self, data: LocalData, start: Tensor, grad_fn: GradFn | None) -> GradFn | None:
        """`grad_fn` itself: in the difference of two gradients the proximal term would cancel."""
        return grad_fn

    def gradients(self, data: LocalData, at: Position, grad_fn: GradFn) -> Iterator[Gradient]:
        """The directions, with the proximal term, as `LocalSolver.gradients`."""
        start = snapshot = full = at.theta.clone()
        held = gather_once(data, self.snapshot_batch_size)
        for step, (x, y, weight) in enumerate(data.batches(self.batching)):
            if step % self.inner_steps == 0:
                samples = held if held is not None else data.samples(self.snapshot_batch_size)
                snapshot = at.theta.clone()
                full = full_gradient(samples, data.num_samples, at.theta, at.stats, step, grad_fn).grad
            batch = Batch(x, y, weight, at.stats)
            here, there = grad_fn(at.theta, batch, step), grad_fn(snapshot, batch, step)
            direction = (here.grad - there.grad).add_(full)
            if self.proximal:
                direction.add_(at.theta - start, alpha=self.proximal)
            yield Gradient(direction, here.loss, here.stats)
