"""Local training: what every local solver has in common, and the loop that makes its steps.

Shape legend: M clients of a chunk, A of them still at work, N in all, D parameters, C running statistics,
F coefficients of a step.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self, final

import torch
from torch import Tensor

from fedcomp.client.contract import Batching, GradFn, LocalData, LocalLoop, LocalResult
from fedcomp.client.shifted_gradient import shifted_gradient
from fedcomp.core.folders import name_of
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.core.ranges import CheckedOptions, Whole, Within
from fedcomp.dataset.contract import Dataset
from fedcomp.model.contract import Batch, Gradient

Schedule = Literal["constant", "linear", "cosine", "inverse_sqrt", "exponential"]


@dataclass(frozen=True)
class Position:
    """Where the clients are: theta [M, D] and stats [M, C], which every step changes in place."""

    theta: Tensor
    stats: Tensor


@dataclass(frozen=True, kw_only=True)
class LocalSolver(CheckedOptions, ABC):
    """Steps along gradients: theta <- theta - lr g, of mini-batches unless a solver overrides `gradients`.

    Attributes:
        lr: learning rate at round 0. lr_final: linear and cosine end at this share of it; exponential multiplies by it
            every round.
        clip_norm: largest Euclidean norm of a client's direction; longer ones are scaled down. None: no clipping.
        proximal: mu of FedProx: mu (theta - start) is added to every gradient, before clipping; start is where the
            client begins the round.
    """

    lr: Annotated[float, Within("(0, inf)")]
    batch_size: Annotated[int, Whole()] = 10
    clip_norm: Annotated[float | None, Within("(0, inf)")] = None
    schedule: Schedule = "constant"
    lr_final: Annotated[float, Within("[0, 1]", "a share of client.lr")] = 0.0
    proximal: Annotated[float, Within("[0, inf)")] = 0.0
    prefix = "client."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule == "exponential" and self.lr_final == 0:
            raise ValueError(
                "client.schedule=exponential multiplies client.lr by client.lr_final in every round, which is 0: give "
                "it, for instance client.lr_final=0.99"
            )

    @property
    @abstractmethod
    def batching(self) -> Batching:
        """How a client goes through its samples."""

    @property
    def most_samples(self) -> int:
        """Samples of one client in its largest gradient."""
        return self.batch_size

    @property
    def fixed_samples(self) -> bool:
        """Whether a sample must be the same in every gradient, so that datasets that augment are refused."""
        return False

    @property
    def momentum(self) -> float:
        """The share of the last direction that a step keeps, where the solver has a momentum."""
        return 0.0

    @property
    def weight_decay(self) -> float:
        """The L2 penalty's factor, where the solver has a penalty."""
        return 0.0

    def check_persistent(self) -> None:
        """Raise ValueError unless it can go on from an earlier round (algorithm.persist_optimizer)."""
        raise ValueError(
            f"algorithm.persist_optimizer=true makes no sense for client={name_of(self)}, which cannot go on from an "
            "earlier round: take client=adam, adamw, muon or sgd"
        )

    def init_persistent(self, num_clients: int, like: Tensor) -> tuple[Tensor, ...]:
        """Memories for `run` to go on from in later rounds, each [N, ...]. Raises ValueError: it cannot."""
        self.check_persistent()
        return ()

    def check_dataset(self, dataset: Dataset) -> None:
        """Raise ValueError, before the first round, if samples must be the same in every gradient and are not."""
        name = name_of(self)
        if self.fixed_samples and dataset.unlabelled == "absent":
            raise ValueError(
                f"client={name} needs a loss that is a mean over samples, but with dataset.unlabelled=absent it "
                "depends on the whole batch: take dataset.unlabelled=ignored, or client=sgd"
            )
        if self.fixed_samples and dataset.augments:
            raise ValueError(
                f"client={name} needs the same samples in every gradient, but dataset={dataset.name} changes them at "
                "random: take dataset.crop_padding=0, dataset.flip=false and no dataset.rescale, or client=sgd"
            )

    def check_tensors(self, tensors: tuple[ParameterTensor, ...]) -> None:
        """Warn, or raise ValueError, before the first round, if the solver does not suit a model of these tensors."""
        return

    def learning_rate(self, progress: Iterable[int]) -> float:
        """The step's length at `progress`, as in `run`."""
        return self.lr * learning_rate_factor(self.schedule, self.lr_final, progress)

    @property
    def plain_sgd_decay(self) -> float | None:
        """w if a step is theta <- theta - lr (gradient + w theta) and nothing else; None for every other step."""
        return None

    def on(self, data: LocalData) -> Self:
        """The solver for this chunk; itself, unless it depends on the model's tensors."""
        return self

    def hook(self, data: LocalData, start: Tensor, grad_fn: GradFn | None) -> GradFn | None:
        """`grad_fn` with the proximal term, of clients that begin at start [M, D]."""
        if not self.proximal:
            return grad_fn
        return shifted_gradient(data, start * -self.proximal, self.proximal, grad_fn)

    def gradients(self, data: LocalData, at: Position, grad_fn: GradFn) -> Iterator[Gradient]:
        """The gradient of each step in turn, [A, D], asked for when the steps before it are made.

        Here of one mini-batch a step; a solver that overrides it makes its steps one by one in every case.
        """
        for step, (x, y, weight) in enumerate(data.batches(self.batching)):
            num_rows = x.shape[0]
            yield grad_fn(at.theta[:num_rows], Batch(x, y, weight, at.stats[:num_rows]), step)

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        """Fresh optimizer memories, each [M, D]; here there are none."""
        return ()

    def step_coefficients(self, steps: float | Tensor, lr: float) -> tuple[float | Tensor, ...]:
        """What `update` multiplies with, after so many steps: floats, or float64 tensors of the shape of `steps`.

        A coefficient that does not depend on the number of steps may be a float in either case.
        """
        return (-lr,)

    def update(
        self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...], coefficients: tuple[float | Tensor, ...]
    ) -> None:
        """One step in place: theta [A, D] and the memories' rows, given the gradient [A, D].

        Coefficients are floats in a loop that runs step by step. They are tensors of no axes in a captured loop, whose
        graph then serves all steps and rounds, and [A, 1] where rows differ in the number of steps they made.
        """
        add_scaled_(theta, grad, coefficients[0])

    def stacked_coefficients(self, steps: Tensor, lr: float) -> Tensor:
        """[F, ...] float64 `step_coefficients` for numbers of steps [...]."""
        found = self.step_coefficients(steps.to(torch.float64), lr)
        like = steps.new_zeros(steps.shape, dtype=torch.float64)
        return torch.stack([like + coefficient for coefficient in found])

    @final
    def run(
        self,
        data: LocalData,
        theta: Tensor,
        stats: Tensor,
        progress: Iterable[int],
        grad_fn: GradFn | None = None,
        memory: tuple[Tensor, ...] = (),
    ) -> LocalResult:
        """Train the chunk's clients on their own data: with the schedule, the hook and the memories of every solver.

        Args:
            data: the chunk. theta: [M, D] and stats: [M, C], where each starts; left as they are.
            progress: (round, num_rounds), for the schedule; 0 is the first round.
            grad_fn: the gradient hook; None for the plain gradient.
            memory: the clients' rows of `init_persistent`, from which it goes on; (): it begins afresh.
        """
        solver = self.on(data)
        loop = LocalLoop(solver, data, theta, stats, self.learning_rate(progress), solver.hook(data, theta, grad_fn))
        if data.loop_runner is not None and not memory and type(self).gradients is LocalSolver.gradients:
            replayed = data.loop_runner.run(loop)
            if replayed is not None:
                return replayed
        return step_by_step(loop, memory)


def step_by_step(loop: LocalLoop, memory: tuple[Tensor, ...] = ()) -> LocalResult:
    """The plain loop, for every solver, model and hook; what other loops are compared with. `memory`: as in `run`."""
    solver, data = loop.solver, loop.data
    at = Position(loop.theta.clone(memory_format=torch.contiguous_format), loop.stats.clone())
    slots = tuple(slot.clone() for slot in memory[:-1]) if memory else solver.init(at.theta)
    loss = at.theta.new_zeros(at.theta.shape[0])
    step, kept = -1, [slot._version for slot in slots]
    for step, gradient in enumerate(solver.gradients(data, at, loop.grad_fn or data.gradient)):
        num_rows = gradient.grad.shape[0]  # those who are done are the last rows
        grad = gradient.grad if solver.clip_norm is None else clip(gradient.grad, solver.clip_norm)
        coefficients = solver.step_coefficients(step, loop.lr)
        if memory:
            made = memory[-1][:num_rows] + step
            coefficients = solver.stacked_coefficients(made, loop.lr).to(grad.dtype).unbind()
        written = at.theta._version
        solver.update(at.theta[:num_rows], grad, tuple(slot[:num_rows] for slot in slots), coefficients)
        if at.theta._version == written:
            raise ValueError(
                f"client={name_of(solver)}: update leaves theta as it was, so that nothing would be learnt: it changes "
                "theta in place, as theta.add_(coefficients[0] * grad) does"
            )
        loss[:num_rows].add_(gradient.loss)
        if at.stats.shape[1]:
            at.stats[:num_rows].copy_(gradient.stats)
    if step >= 0 and kept and kept == [slot._version for slot in slots]:
        raise ValueError(
            f"client={name_of(solver)}: update leaves its memories as they were, so that it remembers nothing: it "
            "changes them in place, as slots[0].mul_(0.9).add_(grad) does"
        )
    num_steps = data.num_steps(solver.batching)
    after = (*slots, memory[-1] + num_steps[:, None]) if memory else ()
    return LocalResult(at.theta, at.stats, loss / num_steps.clamp(min=1), after)


def add_scaled_(theta: Tensor, direction: Tensor, coefficient: float | Tensor) -> None:
    """theta [A, D] += coefficient * direction [A, D], rounded once where the processor can, whichever it is."""
    if isinstance(coefficient, Tensor):
        theta.addcmul_(direction, coefficient)
    else:
        theta.add_(direction, alpha=coefficient)


def clip(grad: Tensor, max_norm: float) -> Tensor:
    """Scale each row of grad [A, D] down to Euclidean norm `max_norm` where it is longer."""
    norm = grad.norm(dim=1, keepdim=True)
    return grad * (max_norm / norm.clamp(min=max_norm))


def learning_rate_factor(schedule: str, final: float, progress: Iterable[int]) -> float:
    """The factor on the learning rate at `progress`: (round, num_rounds), where 0 is the first round.

    constant: 1. linear, cosine: from 1 in the first round to `final` in the last; these alone read `num_rounds`.
    inverse_sqrt: 1 / sqrt(round + 1). exponential: final ** round.
    """
    if schedule in ("linear", "cosine"):
        round_index, num_rounds = progress
        done = round_index / max(num_rounds - 1, 1)
        if schedule == "linear":
            return 1 + (final - 1) * done
        return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * done))
    round_index = next(iter(progress))
    if schedule == "inverse_sqrt":
        return 1 / math.sqrt(round_index + 1)
    if schedule == "exponential":
        return final**round_index
    return 1.0
