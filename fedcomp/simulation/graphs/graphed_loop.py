"""Local loops recorded once and repeated every round: what changes between rounds is copied into tensors that stay.

On a GPU a small model's step is dozens of launches of a few microseconds each; repeating captured pieces of the loop
(`segments.py`, `capture.py`) needs one launch for many steps. The recorded form makes the same draws and, where all
clients make as many steps of as many samples, the same steps as `MinibatchSolver.run`; else it differs by rounding.

Shape legend: M clients of a chunk, R rows of a piece, S steps, K of them in a piece, B batch, D parameters, C running
statistics, F coefficients of a step.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import GradFn, LocalResult
from fedcomp.client.hook import Hook
from fedcomp.client.minibatch import MinibatchSolver
from fedcomp.random.keys import halves
from fedcomp.simulation.graphs.cuda_graphs import Capture, Work
from fedcomp.simulation.graphs.segments import Shape, segments
from fedcomp.simulation.graphs.static_step import Buffers, Inputs, one_step

if TYPE_CHECKING:
    from fedcomp.simulation.chunks.client_data import ChunkData

log = logging.getLogger("fedcomp")

MOST_LOOPS, MOST_PIECES = 8, 256
"""Loops that are kept, each with rows of its clients, and pieces of each, each with its graph. Beyond, what was not
used for longest is dropped."""


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
        step_coefficients = solver.step_coefficients(torch.arange(len(steps.counts)), lr)
        if step_coefficients is None:
            self._explain(f"{type(solver).__name__} has no step_coefficients")
            return None
        pieces = list(segments(steps.counts, steps.position.shape[2]))
        if any(shape.masked for _, _, shape in pieces) and getattr(data.model, "drops_empty_places", False):
            self._explain("the model leaves empty places out, which reads where they are")
            return None
        kept = list(data.computed)
        loop = self._loop(data, solver, theta, stats, grad_fn)
        loop.load(data, theta, stats, grad_fn)
        numbers = data.numbers(steps.position)
        for first, length, shape in pieces:
            piece = loop.piece(length, shape, len(step_coefficients))
            _fill(piece.inputs, data, numbers, steps.counts, step_coefficients.t().contiguous(), first, grad_fn)
            piece.run(self._capture)
        loop.counted.clear()  # what a hook counts there it counts while it is recorded, or done again, or not at all
        data.computed[:] = [*kept, int(steps.counts.sum())]
        return loop.result(len(theta), data.num_steps(batching))

    def _loop(self, data: ChunkData, solver: MinibatchSolver, theta: Tensor, stats: Tensor, hook: Hook | None) -> Loop:
        """The loop for such clients; a new one where there is none, or none with room for so many."""
        shared = () if hook is None else (hook.name, *((one.shape, one.dtype) for one in hook.shared))
        rows = [theta, stats, *(() if hook is None else hook.rows)]
        kinds = *((one.shape[1:], one.dtype) for one in rows), shared
        name = id(data.model), id(data.dataset), solver, kinds
        loop = self._loops.pop(name, None)
        if loop is None or len(loop.buffers.theta) < len(theta):
            loop = Loop(Buffers.like(data, solver, theta, stats, hook), OrderedDict(), data.computed)
        self._loops[name] = loop
        if len(self._loops) > MOST_LOOPS:
            self._loops.popitem(last=False)
        return loop

    def _explain(self, reason: str) -> None:
        if reason not in self._explained:
            self._explained.add(reason)
            log.info("local training runs step by step: %s", reason)


@dataclass
class Piece:
    """Some steps of a loop: run as they are the first time, for their like may never come again, and then recorded.

    Attributes:
        work: the steps, on `inputs`. changed: what they change. what: it is, in words for the log.
        repeat: their repetition; None before the second time.
    """

    inputs: Inputs
    work: Work
    changed: list[Tensor]
    what: str
    used: bool = False
    repeat: Work | None = None

    def run(self, capture: Capture) -> None:
        """Make the steps."""
        if self.used and self.repeat is None:
            self.repeat = capture.record(self.work, self.changed)
            if self.repeat is not self.work:
                log.info("recorded %s", self.what)
        self.used = True
        (self.repeat or self.work)()


@dataclass
class Loop:
    """One recorded loop.

    Attributes:
        buffers: what its pieces read and change. pieces: by steps and shape, the last used last.
        counted: gradients counted on the chunk that it was made for, whose hook it keeps.
    """

    buffers: Buffers
    pieces: OrderedDict[tuple[int, Shape], Piece]
    counted: list[int | Tensor]

    def piece(self, length: int, shape: Shape, num_factors: int) -> Piece:
        """The piece of `length` steps of this shape."""
        piece = self.pieces.pop((length, shape), None)
        if piece is None:
            inputs, buffers = Inputs.of(length, shape, num_factors, self.buffers), self.buffers

            def work() -> None:
                for place in range(length):
                    one_step(buffers, inputs, place)

            what = f"{length} local steps of {shape.rows} clients, {shape.batch} samples each"
            piece = Piece(inputs, work, buffers.changed, what)
        self.pieces[length, shape] = piece
        if len(self.pieces) > MOST_PIECES:
            self.pieces.popitem(last=False)
        return piece

    def load(self, data: ChunkData, theta: Tensor, stats: Tensor, hook: Hook | None) -> None:
        """Put in where a round's clients start."""
        buffers, num = self.buffers, len(theta)
        buffers.ids[:num].copy_(data.ids)
        buffers.theta[:num].copy_(theta)
        buffers.stats[:num].copy_(stats)
        buffers.loss.zero_()
        for slot, fresh in zip(buffers.slots, buffers.solver.init(buffers.theta), strict=True):
            slot.copy_(fresh)
        if hook is not None:
            for kept, given in zip(buffers.rows, hook.rows, strict=True):
                kept[:num].copy_(given)
            for kept, given in zip(buffers.shared, hook.shared, strict=True):
                kept.copy_(given)

    def result(self, num: int, num_steps: Tensor) -> LocalResult:
        """What the round leaves to its clients, the first `num`, in tensors of its own; num_steps: [num]."""
        buffers = self.buffers
        loss = buffers.loss[:num] / num_steps.clamp(min=1)
        return LocalResult(buffers.theta[:num].clone(), buffers.stats[:num].clone(), loss)


def _fill(
    inputs: Inputs,
    data: ChunkData,
    numbers: Tensor,
    counts: np.ndarray,
    step_coefficients: Tensor,
    first: int,
    hook: Hook | None,
) -> None:
    """Copy inputs of the steps from `first` on: samples [S, M, B], counts [S, M], coefficients [S, F] and keys."""
    length, rows, batch = inputs.numbers.shape
    steps = range(first, first + length)
    inputs.numbers.copy_(numbers[first : first + length, :rows, :batch])
    inputs.step_coefficients.copy_(step_coefficients[first : first + length], non_blocking=True)
    if inputs.weight is not None:
        held = torch.from_numpy(counts[first : first + length, :rows].astype(np.int32))
        held = held.to(inputs.weight.device, non_blocking=True)
        inputs.weight.copy_(torch.arange(batch, device=held.device) < held[:, :, None])
    if data.dataset.augments:
        _write(inputs.augmentation, halves([data.augmentation(step) for step in steps]))
    if hook is not None:
        _write(inputs.draws, halves([hook.key.fold_in(step) for step in steps]))
        _write(inputs.step, np.arange(first, first + length))


def _write(slot: Tensor, values: np.ndarray) -> None:
    slot.copy_(torch.from_numpy(np.ascontiguousarray(values)), non_blocking=True)
