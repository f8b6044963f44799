"""Local training: the loop that every local optimiser shares.

Shape legend: M clients of a chunk, A of them still at work, D parameters, C running statistics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import Batch, Batching, GradFn, LocalData
from fedcomp.client.schedule import SCHEDULES, learning_rate_factor


@dataclass(frozen=True)
class LocalResult:
    """What local training leaves.

    Attributes:
        theta: [M, D] parameters after the last step.
        stats: [M, C] running statistics after it.
        loss: [M] mean batch loss over the client's steps.
    """

    theta: Tensor
    stats: Tensor
    loss: Tensor


@dataclass(frozen=True, kw_only=True)
class LocalSolver(ABC):
    """Options that all local optimisers share.

    Attributes:
        lr: learning rate at round 0.
        batch_size, epochs, steps, replacement: see `Batching`; `steps` given wins over `epochs`.
        clip_norm: largest Euclidean norm of a client's gradient; longer ones are scaled down. None: no clipping.
        schedule: how the learning rate changes over rounds: constant, linear, cosine, inverse_sqrt, exponential.
        lr_final: linear and cosine end at this share of `lr`; exponential multiplies by it every round.
    """

    lr: float
    batch_size: int = 10
    epochs: int = 1
    steps: int | None = None
    replacement: bool = False
    clip_norm: float | None = None
    schedule: str = "constant"
    lr_final: float = 0.0

    def __post_init__(self) -> None:
        _positive("client.lr", self.lr)
        _at_least_one("client.batch_size", self.batch_size)
        _at_least_one("client.epochs", self.epochs)
        if self.steps is not None:
            _at_least_one("client.steps", self.steps)
        if self.clip_norm is not None:
            _positive("client.clip_norm", self.clip_norm)
        if self.schedule not in SCHEDULES:
            raise ValueError(f"client.schedule={self.schedule} must be one of {', '.join(SCHEDULES)}")
        if not 0 <= self.lr_final <= 1:
            raise ValueError(f"client.lr_final={self.lr_final} must be in [0, 1]: a share of client.lr")

    @property
    def batching(self) -> Batching:
        """How a client goes through its samples."""
        return Batching(self.batch_size, self.epochs, self.steps, self.replacement)

    @abstractmethod
    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        """Fresh optimiser memories, each [M, D]."""

    @abstractmethod
    def update(self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...], step: int, lr: float) -> None:
        """One step in place: theta [A, D] and the memories' rows, given the gradient [A, D]."""

    def rates(self, num_steps: int, lr: float) -> np.ndarray | None:
        """[S, F] factors of `update_by` in steps 0 to S - 1; None: this solver has no such form."""
        return None

    def update_by(self, theta: Tensor, grad: Tensor, slots: tuple[Tensor, ...], rates: Tensor) -> None:
        """`update` with what depends on step and round in a tensor [F], so that one recorded step serves them all."""
        raise NotImplementedError

    def run(
        self, data: LocalData, theta: Tensor, stats: Tensor, progress: tuple[int, int], grad_fn: GradFn | None = None
    ) -> LocalResult:
        """Train the chunk's clients on their own data.

        Args:
            data: the chunk. theta: [M, D] and stats: [M, C], where each starts; left as they are.
            progress: (round, num_rounds), for the schedule.
            grad_fn: the gradient hook; None for the plain gradient.
        """
        lr = self.lr * learning_rate_factor(self.schedule, self.lr_final, *progress)
        recorder = getattr(data, "recorder", None)
        if recorder is not None and (repeated := recorder.run(data, self, theta, stats, lr, grad_fn)) is not None:
            return repeated
        grad_fn = grad_fn or data.gradient
        theta, stats = theta.clone(memory_format=torch.contiguous_format), stats.clone()
        slots = self.init(theta)
        loss = theta.new_zeros(theta.shape[0])
        working, memory, current, total = theta, slots, stats, loss
        for step, (x, y, weight) in enumerate(data.batches(self.batching)):
            if x.shape[0] < working.shape[0]:  # those who are done are the last rows
                working, current, total = theta[: x.shape[0]], stats[: x.shape[0]], loss[: x.shape[0]]
                memory = tuple(slot[: x.shape[0]] for slot in slots)
            gradient = grad_fn(working, Batch(x, y, weight, current), step)
            grad = gradient.grad if self.clip_norm is None else clip(gradient.grad, self.clip_norm)
            self.update(working, grad, memory, step, lr)
            total += gradient.loss
            if stats.shape[1]:
                current.copy_(gradient.stats)
        return LocalResult(theta, stats, loss / data.num_steps(self.batching).clamp(min=1))


def clip(grad: Tensor, max_norm: float) -> Tensor:
    """Scale each row of grad [A, D] down to Euclidean norm `max_norm` where it is longer."""
    norm = grad.norm(dim=1, keepdim=True)
    return grad * (max_norm / norm.clamp(min=max_norm))


def _positive(name: str, value: float) -> None:
    if not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{name}={value} must be a positive number")


def _at_least_one(name: str, value: int) -> None:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value} must be a whole number, 1 or more")
