"""Local training in one call, where model and solver can; other loops run step by step.

All steps of plain SGD are then made by compiled code that nothing interrupts. A step of a small network costs less than
Python needs to ask for it.

Shape legend: M clients of a chunk, D parameters.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import cast

import torch
from torch import Tensor

from fedcomp.client.contract import LocalLoop, LocalResult, LoopRunner
from fedcomp.client.sgd import Sgd
from fedcomp.client.solver import step_by_step
from fedcomp.core.accelerated import Form, code_of, is_safe, plainly
from fedcomp.core.to_device import to_device
from fedcomp.model.contract import Batch, Model, SgdSteps, TrainFused
from fedcomp.simulation.chunks.batch_schedule import BatchSchedule
from fedcomp.simulation.cuda_graphs.capture import CudaGraphs, can_capture

STEPS = Form("local steps in one call", "steps one by one")
FEW, TOLERANCE = 4, 1e-2
"""Clients of the trial, and what they may differ by as a share of the norm. Where rounding brings a sum to the other
side of zero, a ReLU turns on or off."""


class FusedLoops:
    """Implements `LoopRunner`: plain SGD without a gradient hook, on a model that trains its clients in one call."""

    def run(self, loop: LocalLoop) -> LocalResult | None:
        """What `step_by_step` returns, but for rounding; None where the steps have to be made one by one."""
        data, decay, train = loop.data, loop.solver.plain_sgd_decay, _train(loop)
        if train is None or decay is None:
            return None
        steps, trial = data.schedule(loop.solver.batching), _Trial(loop, decay)
        result = _at_once(loop, steps, train, decay)
        about = f"{type(data.model).__name__}, batches of {loop.solver.batch_size}"
        if not STEPS.agrees(about, partial(trial.at_once, train), trial.one_by_one, TOLERANCE):
            return None
        data.count(steps.counts)
        return result


def _train(loop: LocalLoop) -> TrainFused | None:
    model, dataset = cast(Model, loop.data.model), loop.data.dataset  # solvers train networks only
    if STEPS.refused or loop.grad_fn is not None or loop.theta.dtype != torch.float32 or dataset.augments:
        return None
    return model.fused_sgd(dataset.train.x, dataset.train.y)


def _at_once(loop: LocalLoop, steps: BatchSchedule, train: TrainFused, decay: float) -> LocalResult:
    samples = loop.data.sample_indices(steps.position)
    normalisation = loop.data.dataset.offset_and_scale
    after, loss = train(SgdSteps(loop.theta, normalisation, samples, steps.counts, loop.lr, decay))
    num_steps = to_device(steps.counts.num_steps, loop.theta.device)
    return LocalResult(after, loop.stats.clone(), loss / num_steps.clamp(min=1))


@dataclass(frozen=True)
class _Trial:
    """Two steps of the first clients of a loop, by which all steps at once prove themselves.

    They are so long that theta [M, D] changes by one per cent or so, lest its rounding hide a wrong gradient.
    """

    whole: LocalLoop
    decay: float

    def at_once(self, train: TrainFused) -> tuple[Tensor, Tensor]:
        """The change of theta, and the losses."""
        steps = self._loop.data.schedule(self._loop.solver.batching)
        result = _at_once(self._loop, steps, train, self.decay)
        return result.value - self._loop.theta, result.loss

    def one_by_one(self) -> tuple[Tensor, Tensor]:
        """The same by gradients."""
        with plainly():
            result = step_by_step(self._loop)
        return result.value - self._loop.theta, result.loss

    @cached_property
    def _loop(self) -> LocalLoop:
        whole = self.whole
        data = replace(whole.data, ids=whole.data.ids[:FEW], sizes=whole.data.sizes[:FEW], computed=[])
        solver = Sgd(lr=whole.lr, batch_size=whole.solver.batch_size, steps=2, weight_decay=self.decay)
        theta, stats = whole.theta[:FEW], whole.stats[:FEW]
        x, y, weight = next(data.batches(solver.batching))
        with plainly():
            gradient = float(data.gradient(theta, Batch(x, y, weight, stats), 0).grad.norm())
        usual = gradient > 0 and math.isfinite(gradient)
        rate = 0.01 * (float(theta.norm()) or 1.0) / gradient if usual else 0.01
        return LocalLoop(solver, data, theta, stats, rate)


def loop_runner_on(device: torch.device, graphs: bool = True) -> LoopRunner | None:
    """Runs loops as a whole: on a CPU where the model can, elsewhere as CUDA graphs where there are any and `graphs`.

    None: they run step by step.
    """
    if is_safe():
        return None
    if device.type == "cpu":
        return FusedLoops()
    loops = code_of("fedcomp.simulation.cuda_graphs.graphed_loop") if graphs and can_capture(device) else None
    return None if loops is None else loops.GraphedLoops(CudaGraphs(device))
