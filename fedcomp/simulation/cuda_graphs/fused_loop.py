"""Local training loops in one launch or call, where model and solver can; other loops go to another runner.

Shape legend: M clients of a chunk, S steps, B batch, D parameters, C running statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedcomp.client.contract import GradFn, LocalResult, LoopRunner
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.core.to_device import to_device
from fedcomp.model.contract import FusesSgd
from fedcomp.simulation.cuda_graphs.capture import CudaGraphs, can_capture
from fedcomp.simulation.cuda_graphs.graphed_loop import GraphedLoops

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
        if grad_fn is None and isinstance(model, FusesSgd) and theta.dtype == torch.float32 and not dataset.augments:
            train = model.fused_sgd(dataset.train.x, dataset.train.y, solver.batch_size)
        if train is None or decay is None:
            return self.otherwise.run(data, solver, theta, stats, lr, grad_fn)
        steps = data.schedule(solver.batching)
        after, loss = train(theta, dataset.offset_and_scale, data.numbers(steps.position), steps.counts, lr, decay)
        data.count(steps.counts)
        num_steps = to_device(steps.counts.num_steps, theta.device)
        return LocalResult(after, stats.clone(), loss / num_steps.clamp(min=1))


@dataclass(frozen=True)
class StepByStep:
    """Implements `LoopRunner`: every loop runs step by step."""

    def run(self, *loop: Any) -> None:
        """None."""


def loop_runner_on(device: torch.device, graphs: bool = True) -> LoopRunner | None:
    """Runs loops as a whole where the model can, and others as CUDA graphs where there are any and `graphs`.

    None: they run step by step.
    """
    if device.type == "cpu":
        return FusedLoops(StepByStep())
    return FusedLoops(GraphedLoops(CudaGraphs(device))) if graphs and can_capture(device) else None
