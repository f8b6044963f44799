"""Local training loops in one launch or call, where model and solver can; other loops go to another runner.

Shape legend: M clients of a chunk, S steps, B batch, D parameters, C running statistics.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import GradFn, LocalResult, LoopRunner
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.core.accelerated import Form, code_of, is_safe, plainly
from fedcomp.core.step_counts import StepCounts
from fedcomp.core.to_device import to_device
from fedcomp.model.contract import FusesSgd, Gradient, Model, TrainFused
from fedcomp.simulation.chunks.client_data import gather
from fedcomp.simulation.cuda_graphs.capture import CudaGraphs, can_capture

STEPS = Form("local steps in one call", "steps one by one")
FEW, TOLERANCE, ON_CPU = 4, 1e-4, 1e-2
"""Clients of the trial, and what they may differ by as a share of the norm. Where rounding brings a sum to the other
side of zero, a ReLU turns on or off: hardly ever in a small perceptron on a GPU, now and then in a larger network."""

if TYPE_CHECKING:
    from fedcomp.simulation.chunks.client_data import ClientChunk


@dataclass(frozen=True)
class FusedLoops:
    """Implements `LoopRunner`: plain SGD without a gradient hook, on a model that trains its clients in one launch.

    Attributes:
        otherwise: runs all other loops.
    """

    otherwise: LoopRunner

    def run(
        self,
        data: ClientChunk,
        solver: MinibatchSolver,
        theta: Tensor,
        stats: Tensor,
        lr: float,
        grad_fn: GradFn | None,
    ) -> LocalResult | None:
        """What `solver.run` returns, but for rounding; None where the loop has to run step by step."""
        decay, model, dataset = solver.plain_sgd_decay, data.model, data.dataset
        train = None
        fits = grad_fn is None and theta.dtype == torch.float32 and not dataset.augments
        if fits and isinstance(model, FusesSgd) and not STEPS.refused:
            train = model.fused_sgd(dataset.train.x, dataset.train.y, solver.batch_size)
        if train is None or decay is None:
            return self.otherwise.run(data, solver, theta, stats, lr, grad_fn)
        steps = data.schedule(solver.batching)
        numbers = data.numbers(steps.position)
        after, loss = train(theta, dataset.offset_and_scale, numbers, steps.counts, lr, decay)
        trial = _TwoSteps(data, theta[:FEW], stats[:FEW], numbers[:2, :FEW], steps.counts.of_steps[:2, :FEW], decay)
        about = f"{type(model).__name__}, batches of {solver.batch_size}"
        tolerance = ON_CPU if theta.device.type == "cpu" else TOLERANCE
        if not STEPS.agrees(about, partial(trial.at_once, train), trial.one_by_one, tolerance):
            return self.otherwise.run(data, solver, theta, stats, lr, grad_fn)
        data.count(steps.counts)
        num_steps = to_device(steps.counts.num_steps, theta.device)
        return LocalResult(after, stats.clone(), loss / num_steps.clamp(min=1))


@dataclass(frozen=True)
class _TwoSteps:
    """The first two steps of a chunk, on copies: by which all steps at once prove themselves.

    They are so long that theta [M, D] changes by one per cent or so, lest its rounding hide a wrong gradient.

    Attributes:
        numbers: [2, M, B] samples of each step. counts: [2, M] how many are real. decay: as in `contract.TrainFused`.
    """

    data: ClientChunk
    theta: Tensor
    stats: Tensor
    numbers: Tensor
    counts: np.ndarray
    decay: float

    def at_once(self, train: TrainFused) -> tuple[Tensor, Tensor]:
        """The change of theta and the sum of the losses."""
        normalisation = self.data.dataset.offset_and_scale
        after, loss = train(self.theta, normalisation, self.numbers, StepCounts(self.counts), self._rate, self.decay)
        return after - self.theta, loss

    def one_by_one(self) -> tuple[Tensor, Tensor]:
        """The same by gradients."""
        theta, loss = self.theta.clone(), torch.zeros_like(self.theta[:, 0])
        for step, real in enumerate(to_device(self.counts, theta.device)):
            gradient = self._gradient(theta, step)
            works = (real > 0)[:, None]
            theta -= torch.where(works, self._rate * (gradient.grad + self.decay * theta), 0.0)
            loss += torch.where(works[:, 0], gradient.loss, 0.0)
        return theta - self.theta, loss

    def _gradient(self, theta: Tensor, step: int) -> Gradient:
        data = self.data
        x, y = gather(data.dataset, self.numbers[step : step + 1], data.ids[:FEW], [])
        real = to_device(self.counts[step].astype(np.int64), theta.device)
        weight = (torch.arange(x.shape[2], device=theta.device) < real[:, None]).to(theta.dtype)
        with plainly():
            return cast(Model, data.model).gradient(theta, self.stats, x[0], y[0], weight)

    @functools.cached_property
    def _rate(self) -> float:
        gradient, theta = (float(part.norm()) for part in (self._gradient(self.theta, 0).grad, self.theta))
        return 0.01 * (theta or 1.0) / gradient if gradient > 0 and math.isfinite(gradient) else 0.01


@dataclass(frozen=True)
class StepByStep:
    """Implements `LoopRunner`: every loop runs step by step."""

    def run(self, *loop: Any) -> None:
        """None."""


def loop_runner_on(device: torch.device, graphs: bool = True) -> LoopRunner | None:
    """Runs loops as a whole where the model can, and others as CUDA graphs where there are any and `graphs`.

    None: they run step by step.
    """
    if is_safe():
        return None
    if device.type == "cpu":
        return FusedLoops(StepByStep())
    loops = code_of("fedcomp.simulation.cuda_graphs.graphed_loop") if graphs and can_capture(device) else None
    return None if loops is None else FusedLoops(loops.GraphedLoops(CudaGraphs(device)))
