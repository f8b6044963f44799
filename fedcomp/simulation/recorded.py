"""Local loops recorded once and repeated every round: what changes between rounds is copied into tensors that stay.

On a GPU a small model's step is dozens of launches of a few microseconds each; repeating captured pieces of the loop
(`segments.py`, `capture.py`) needs one launch for many steps. The recorded form makes the same draws and, where all
clients make as many steps of as many samples, the same steps as `MinibatchSolver.run`; else it differs by rounding.

Shape legend: M clients of a chunk, R rows of a piece, S steps, K of them in a piece, B batch, D parameters, C running
statistics, F factors of a step.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import GradFn
from fedcomp.client.hook import Hook
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.client.solver import LocalResult
from fedcomp.keys import halves
from fedcomp.simulation.capture import Capture, Work
from fedcomp.simulation.repeated_step import Buffers, Inputs, one_step
from fedcomp.simulation.segments import Shape, segments

if TYPE_CHECKING:
    from fedcomp.simulation.local import ChunkData

log = logging.getLogger("fedcomp")

MOST_LOOPS = 8
"""Loops that are kept; each holds rows of its clients. Beyond, the one that was not used for longest is dropped."""


class Recorder:
    """The loops recorded so far in a run, by all that they were recorded for. For one thread."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._loops: OrderedDict[object, Loop] = OrderedDict()
        self._explained: set[str] = set()

    def run(
        self, data: ChunkData, solver: MinibatchSolver, theta: Tensor, stats: Tensor, lr: float, grad_fn: GradFn | None
    ) -> LocalResult | None:
        """What `solver.run` returns; None where the loop has to run step by step, which is logged once.

        Args:
            data: the chunk. theta: [M, D] and stats: [M, C], where each client starts. lr: of this round.
            grad_fn: the gradient hook; only a `Hook` can be recorded.
        """
        if not (grad_fn is None or isinstance(grad_fn, Hook)):
            self._explain(f"{getattr(grad_fn, '__qualname__', grad_fn)} is no Hook")
            return None
        batching = solver.batching
        steps = data.plan(batching)
        factors = solver.factors(torch.arange(len(steps.counts)), lr)
        if factors is None:
            self._explain(f"{type(solver).__name__} has no factors")
            return None
        kept = list(data.computed)
        loop = self._loop(data, solver, theta, stats, grad_fn)
        loop.load(data, theta, stats, grad_fn)
        numbers, batch = data.numbers(steps.position), steps.position.shape[2]
        for first, length, shape in segments(steps.counts, batch):
            inputs, repeat = self._piece(loop, length, shape, len(factors))
            _fill(inputs, data, numbers, steps.counts, factors.t().contiguous(), first, grad_fn)
            repeat()
        loop.counted.clear()  # what a hook counts there it counts while it is recorded, or done again, or not at all
        data.computed[:] = [*kept, int(steps.counts.sum())]
        return loop.result(data.num_steps(batching))

    def _loop(self, data: ChunkData, solver: MinibatchSolver, theta: Tensor, stats: Tensor, hook: Hook | None) -> Loop:
        read = () if hook is None else (hook.name, *((tensor.shape, tensor.dtype) for tensor in hook.tensors))
        name = (id(data.model), id(data.dataset), solver, theta.shape, theta.dtype, stats.shape, read)
        loop = self._loops.pop(name, None) or Loop(Buffers.like(data, solver, theta, stats, hook), {}, data.computed)
        self._loops[name] = loop
        if len(self._loops) > MOST_LOOPS:
            self._loops.popitem(last=False)
        return loop

    def _piece(self, loop: Loop, length: int, shape: Shape, num_factors: int) -> tuple[Inputs, Work]:
        piece = loop.pieces.get((length, shape))
        if piece is None:
            inputs, buffers = Inputs.of(length, shape, num_factors, loop.buffers), loop.buffers

            def work() -> None:
                for place in range(length):
                    one_step(buffers, inputs, place)

            piece = inputs, self._capture.record(work, buffers.changed)
            loop.pieces[length, shape] = piece
            log.info("recorded %d local steps of %d clients, %d samples each", length, shape.rows, shape.batch)
        return piece

    def _explain(self, reason: str) -> None:
        if reason not in self._explained:
            self._explained.add(reason)
            log.info("local training runs step by step: %s", reason)


@dataclass
class Loop:
    """One recorded loop.

    Attributes:
        buffers: what its pieces read and change. pieces: its recorded pieces with their inputs, by steps and shape.
        counted: gradients counted on the chunk that it was made for, whose hook it keeps.
    """

    buffers: Buffers
    pieces: dict[tuple[int, Shape], tuple[Inputs, Work]]
    counted: list[int | Tensor]

    def load(self, data: ChunkData, theta: Tensor, stats: Tensor, hook: Hook | None) -> None:
        """Put in where a round's clients start."""
        buffers = self.buffers
        buffers.ids.copy_(data.ids)
        buffers.theta.copy_(theta)
        buffers.stats.copy_(stats)
        buffers.loss.zero_()
        for slot, fresh in zip(buffers.slots, buffers.solver.init(buffers.theta), strict=True):
            slot.copy_(fresh)
        if hook is not None:
            for kept, given in zip(buffers.tensors, hook.tensors, strict=True):
                kept.copy_(given)

    def result(self, num_steps: Tensor) -> LocalResult:
        """What the round leaves, in tensors of its own; num_steps: [M]."""
        buffers = self.buffers
        return LocalResult(buffers.theta.clone(), buffers.stats.clone(), buffers.loss / num_steps.clamp(min=1))


def _fill(
    inputs: Inputs,
    data: ChunkData,
    numbers: Tensor,
    counts: np.ndarray,
    factors: Tensor,
    first: int,
    hook: Hook | None,
) -> None:
    """Put in what the steps from `first` on read: sample numbers [S, M, B], counts [S, M], factors [S, F], keys."""
    length, rows, batch = inputs.numbers.shape
    steps = range(first, first + length)
    inputs.numbers.copy_(numbers[first : first + length, :rows, :batch])
    inputs.factors.copy_(factors[first : first + length], non_blocking=True)
    if inputs.weight is not None:
        held = counts[first : first + length, :rows, None]
        _write(inputs.weight, (np.arange(batch) < held).astype(np.float32))
    if data.dataset.augments:
        _write(inputs.augmentation, halves([data.augmentation(step) for step in steps]))
    if hook is not None:
        _write(inputs.draws, halves([hook.key.fold(step) for step in steps]))
        _write(inputs.step, np.arange(first, first + length))


def _write(slot: Tensor, values: np.ndarray) -> None:
    slot.copy_(torch.from_numpy(np.ascontiguousarray(values)), non_blocking=True)
