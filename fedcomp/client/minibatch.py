"""Mini-batch optimisers: one gradient a step; the loop that SGD and Adam share.

Shape legend: M clients of a chunk, A of them still at work, D parameters, C running statistics.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.client.contract import Batch, Batching, GradFn, LocalData, LocalResult
from fedcomp.client.shifted_gradient import shifted_gradient
from fedcomp.client.solver import LocalSolver, clip
from fedcomp.core.validate import check_count


@dataclass(frozen=True, kw_only=True)
class MinibatchSolver(LocalSolver):
    """Steps along gradients of mini-batches.

    Attributes:
        epochs, steps, replacement: see `Batching`. With `steps` given, `epochs` is left at 1, or None.
    """

    epochs: int | None = 1
    steps: int | None = None
    replacement: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("client.epochs", self.epochs, or_null=True)
        check_count("client.steps", self.steps, or_null=True)
        if self.epochs is None and self.steps is None:
            raise ValueError("client.epochs and client.steps are both null: give one of them")
        if self.steps is not None and self.epochs not in (None, 1):
            raise ValueError(
                f"client.epochs={self.epochs} and client.steps={self.steps} both say how long a client trains: give "
                "one of them, and null for the other"
            )

    @property
    def batching(self) -> Batching:
        """As the options say."""
        return Batching(self.batch_size, self.epochs or 1, self.steps, self.replacement)

    @property
    def plain_sgd_decay(self) -> float | None:
        """w if a step is theta <- theta - lr (gradient + w theta) and nothing else; None for every other step."""
        return None

    @abstractmethod
    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        """Fresh optimiser memories, each [M, D]."""

    @abstractmethod
    def step_coefficients(self, steps: float | Tensor, lr: float) -> tuple[float | Tensor, ...]:
        """What `update` multiplies with, after so many steps: floats, or float64 tensors of the shape of `steps`.

        A coefficient that does not depend on the number of steps may be a float in either case.
        """

    @abstractmethod
    def update(
        self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...], coefficients: tuple[float | Tensor, ...]
    ) -> None:
        """One step in place: theta [A, D] and the memories' rows, given the gradient [A, D].

        Coefficients are floats in a loop that runs step by step. They are tensors of no axes in a captured loop, whose
        graph then serves all steps and rounds, and [A, 1] where rows differ in the number of steps they made.
        """

    def stacked_coefficients(self, steps: Tensor, lr: float) -> Tensor:
        """[F, ...] float64 `step_coefficients` for numbers of steps [...]."""
        found = self.step_coefficients(steps.to(torch.float64), lr)
        like = steps.new_zeros(steps.shape, dtype=torch.float64)
        return torch.stack([like + coefficient for coefficient in found])

    def check_persistent(self) -> None:
        """It can."""

    def init_persistent(self, num_clients: int, like: Tensor) -> tuple[Tensor, ...]:
        """Memories for `run` to go on from in later rounds: those of `init`, each [N, D], and steps so far [N, 1]."""
        slots = self.init(like.expand(num_clients, -1))
        return (*slots, like.new_zeros(num_clients, 1, dtype=torch.int64))

    def run(
        self,
        data: LocalData,
        theta: Tensor,
        stats: Tensor,
        progress: Iterable[int],
        grad_fn: GradFn | None = None,
        memory: tuple[Tensor, ...] = (),
    ) -> LocalResult:
        """As `LocalSolver.run`; with `memory`, rows of `init_persistent`, it continues from that, step by step."""
        lr = self.learning_rate(progress)
        if self.proximal:
            grad_fn = shifted_gradient(data, theta * -self.proximal, self.proximal, grad_fn)
        if data.loop_runner is not None and not memory:
            replayed = data.loop_runner.run(data, self, theta, stats, lr, grad_fn)
            if replayed is not None:
                return replayed
        grad_fn = grad_fn or data.gradient
        theta, stats = theta.clone(memory_format=torch.contiguous_format), stats.clone()
        slots = tuple(slot.clone() for slot in memory[:-1]) if memory else self.init(theta)
        loss = theta.new_zeros(theta.shape[0])
        working, held, current, total = theta, slots, stats, loss
        for step, (x, y, weight) in enumerate(data.batches(self.batching)):
            if x.shape[0] < working.shape[0]:  # those who are done are the last rows
                working, current, total = theta[: x.shape[0]], stats[: x.shape[0]], loss[: x.shape[0]]
                held = tuple(slot[: x.shape[0]] for slot in slots)
            gradient = grad_fn(working, Batch(x, y, weight, current), step)
            grad = gradient.grad if self.clip_norm is None else clip(gradient.grad, self.clip_norm)
            coefficients = self.step_coefficients(step, lr)
            if memory:
                made = memory[-1][: x.shape[0]] + step
                coefficients = self.stacked_coefficients(made, lr).to(theta.dtype).unbind()
            self.update(working, grad, held, coefficients)
            total += gradient.loss
            if stats.shape[1]:
                current.copy_(gradient.stats)
        num_steps = data.num_steps(self.batching)
        after = (*slots, memory[-1] + num_steps[:, None]) if memory else ()
        return LocalResult(theta, stats, loss / num_steps.clamp(min=1), after)


def add_scaled_(theta: Tensor, direction: Tensor, coefficient: float | Tensor) -> None:
    """theta [A, D] += coefficient * direction [A, D], rounded once where the processor can, whichever it is."""
    if isinstance(coefficient, Tensor):
        theta.addcmul_(direction, coefficient)
    else:
        theta.add_(direction, alpha=coefficient)
