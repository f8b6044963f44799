"""Local training loops captured as CUDA graphs and replayed every round, on static input tensors.

On a GPU a small model's step is dozens of launches of a few microseconds each; replaying captured segments of the loop
(`segments.py`, `capture.py`) needs one launch for many steps. A replayed loop makes the same draws as
`step_by_step`. Its steps are the same bit for bit if all clients make equally many steps with equally many
samples; otherwise they differ by rounding. So do those of Adam on a GPU, whose learning rate is a tensor here and a
number there.

Shape legend: M clients of a chunk, S steps, B batch, F coefficients of a step.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import LocalLoop, LocalResult
from fedcomp.client.hook import Hook
from fedcomp.core.accelerated import Form
from fedcomp.core.to_device import to_device
from fedcomp.model.contract import Model
from fedcomp.random.keys import seed_halves
from fedcomp.simulation.cuda_graphs.capture import Capture, Work
from fedcomp.simulation.cuda_graphs.segments import Shape, segments
from fedcomp.simulation.cuda_graphs.static_step import StaticBuffers, StaticInputs, static_step

if TYPE_CHECKING:
    from fedcomp.simulation.chunks.client_data import ClientChunk, RowCounts

log = logging.getLogger("fedcomp")

GRAPHS = Form("CUDA graphs", "the same steps one by one")
FAR = 1e-4
"""The largest difference allowed between a replay and the steps, where kernels are not deterministic."""
MOST_LOOPS, MOST_GRAPHS = 8, 256
"""Most loops that are kept in a run, and most graphs of a loop; beyond that the least recently used one is dropped."""


class GraphedLoops:
    """The captured loops of a run, by solver, model, dataset and tensor shapes. Not thread-safe."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._loops: OrderedDict[object, GraphedLoop] = OrderedDict()
        self._explained: set[str] = set()

    def run(self, loop: LocalLoop) -> LocalResult | None:
        """What `step_by_step` returns; None where the steps have to be made one by one, which is logged once."""
        data, solver, hook = loop.data, loop.solver, loop.grad_fn
        if not (hook is None or isinstance(hook, Hook)):
            self._explain(f"{getattr(hook, '__qualname__', hook)} is no Hook")
            return None
        network = cast(Model, data.model)  # solvers train networks only
        if network.draws_in_training:
            self._explain("the model draws random numbers in training, and a replay would repeat them")
            return None
        steps = data.schedule(solver.batching)
        counts = steps.counts.of_steps
        step_coefficients = solver.stacked_coefficients(torch.arange(len(counts)), loop.lr).t().contiguous()
        graphs = list(segments(counts, steps.position.shape[2]))
        if any(shape.masked for _, _, shape in graphs) and network.drops_empty_places:
            self._explain("the model leaves empty places out, which reads where they are")
            return None
        kept = list(data.computed)
        recorded = self._recorded(loop, hook)
        recorded.load(loop, hook)
        samples = data.sample_indices(steps.position)
        for first, length, shape in graphs:
            graph = recorded.graph(length, shape, step_coefficients.shape[1])
            _fill(graph.inputs, data, samples, counts, step_coefficients, first, hook)
            graph.run(self._capture)
        recorded.counted.clear()  # capturing and replaying count wrongly: the true count is set below
        data.computed[:] = kept
        data.count(steps.counts)
        return recorded.result(len(loop.theta), data.num_steps(solver.batching))

    def _recorded(self, loop: LocalLoop, hook: Hook | None) -> GraphedLoop:
        """The captured loop for these tensor shapes; a new one if there is none with room for so many clients."""
        shared = () if hook is None else (hook.name, *((one.shape, one.dtype) for one in hook.shared))
        rows = [loop.theta, loop.stats, *(() if hook is None else hook.rows)]
        kinds = *((one.shape[1:], one.dtype) for one in rows), shared
        name = id(loop.data.model), id(loop.data.dataset), loop.solver, kinds
        found = self._loops.pop(name, None)
        if found is None or len(found.buffers.theta) < len(loop.theta):
            found = GraphedLoop(StaticBuffers.like(loop, hook), OrderedDict(), loop.data.computed)
        self._loops[name] = found
        if len(self._loops) > MOST_LOOPS:
            self._loops.popitem(last=False)
        return found

    def _explain(self, reason: str) -> None:
        if reason not in self._explained:
            self._explained.add(reason)
            log.info("local training runs step by step: %s", reason)


@dataclass
class StepGraph:
    """The graph of a segment. Its steps run eagerly the first time, and are captured when they are used again.

    Attributes:
        inputs: static inputs of the steps. work: makes the steps. changed: the tensors that they change.
        description: of the segment, for the log. used: whether it has been run. replay: None before the second use.
    """

    inputs: StaticInputs
    work: Work
    changed: list[Tensor]
    description: str
    used: bool = False
    replay: Work | None = None

    def run(self, capture: Capture) -> None:
        """Make the steps."""
        if not self.used or GRAPHS.refused:
            self.used = True
            self.work()
        elif self.replay is not None:
            self.replay()
        else:
            self.replay = capture.capture(self.work, self.changed)
            if self.replay is self.work:
                self.work()
            else:
                log.info("recorded %s", self.description)
                self._first_replay(self.replay)

    def _first_replay(self, replay: Work) -> None:
        """Make the steps by a replay and eagerly, from the same start; if results differ, those of the eager steps."""
        start = [tensor.clone() for tensor in self.changed]

        def from_start(work: Work) -> tuple[Tensor, ...]:
            for tensor, old in zip(self.changed, start, strict=True):
                tensor.copy_(old)
            work()
            return tuple(tensor.clone() for tensor in self.changed)

        works = partial(from_start, replay), partial(from_start, self.work)
        exact = start[0].device.type == "cpu" or torch.are_deterministic_algorithms_enabled()
        if not GRAPHS.agrees(self.description, *works, tolerance=0.0 if exact else FAR, again=True):
            from_start(self.work)


@dataclass
class GraphedLoop:
    """One captured loop.

    Attributes:
        buffers: static tensors that its graphs read and change.
        graphs: {(steps, shape): graph of such a segment}, the most recently used one last.
        counted: where the chunk that the loop was made for counts gradients; its hook appends to it.
    """

    buffers: StaticBuffers
    graphs: OrderedDict[tuple[int, Shape], StepGraph]
    counted: list[RowCounts]

    def graph(self, length: int, shape: Shape, num_coefficients: int) -> StepGraph:
        """The graph of a segment of `length` steps of this shape, with `num_coefficients` (F) a step."""
        graph = self.graphs.pop((length, shape), None)
        if graph is None:
            inputs, buffers = StaticInputs.of(length, shape, num_coefficients, self.buffers), self.buffers

            def work() -> None:
                for step in range(length):
                    static_step(buffers, inputs, step)

            description = f"{length} local steps of {shape.rows} clients, {shape.batch} samples each"
            graph = StepGraph(inputs, work, buffers.changed, description)
        self.graphs[length, shape] = graph
        if len(self.graphs) > MOST_GRAPHS:
            self.graphs.popitem(last=False)
        return graph

    def load(self, loop: LocalLoop, hook: Hook | None) -> None:
        """Copy the start of a round's clients into the static buffers."""
        buffers, num = self.buffers, len(loop.theta)
        buffers.ids[:num].copy_(loop.data.ids)
        buffers.theta[:num].copy_(loop.theta)
        buffers.stats[:num].copy_(loop.stats)
        buffers.loss.zero_()
        for slot, fresh in zip(buffers.slots, buffers.solver.init(buffers.theta), strict=True):
            slot.copy_(fresh)
        if hook is not None:
            for kept, given in zip(buffers.rows, hook.rows, strict=True):
                kept[:num].copy_(given)
            for kept, given in zip(buffers.shared, hook.shared, strict=True):
                kept.copy_(given)

    def result(self, num: int, num_steps: Tensor) -> LocalResult:
        """The result of the round's `num` clients, copied out of the static buffers; num_steps: [num]."""
        buffers = self.buffers
        loss = buffers.loss[:num] / num_steps.clamp(min=1)
        return LocalResult(buffers.theta[:num].clone(), buffers.stats[:num].clone(), loss)


def _fill(
    inputs: StaticInputs,
    data: ClientChunk,
    samples: Tensor,
    counts: np.ndarray,
    step_coefficients: Tensor,
    first: int,
    hook: Hook | None,
) -> None:
    """Copy inputs of the steps from `first` on: samples [S, M, B], counts [S, M], coefficients [S, F] and keys."""
    length, rows, batch = inputs.sample_indices.shape
    steps = range(first, first + length)
    inputs.sample_indices.copy_(samples[first : first + length, :rows, :batch])
    inputs.step_coefficients.copy_(step_coefficients[first : first + length], non_blocking=True)
    if inputs.weight is not None:
        held = to_device(counts[first : first + length, :rows].astype(np.int32), inputs.weight.device)
        inputs.weight.copy_(torch.arange(batch, device=held.device) < held[:, :, None])
    if data.dataset.augments:
        _write(inputs.augmentation, seed_halves([data.augmentation(step) for step in steps]))
    if hook is not None:
        _write(inputs.draws, seed_halves([hook.key.fold_in(step) for step in steps]))
        _write(inputs.step, np.arange(first, first + length))


def _write(slot: Tensor, values: np.ndarray) -> None:
    slot.copy_(torch.from_numpy(np.ascontiguousarray(values)), non_blocking=True)
