"""One local step on static tensors: what a captured loop replays.

Shape legend: M clients of a chunk, R rows of a segment, K steps of it, B batch, D parameters, C running statistics,
F coefficients of a step.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from fedcomp.client.contract import LocalLoop
from fedcomp.client.hook import Hook, Reads
from fedcomp.client.solver import LocalSolver, clip
from fedcomp.dataset.contract import Dataset
from fedcomp.model.contract import Batch, Gradient, Model
from fedcomp.random.keys import DeviceKey
from fedcomp.simulation.chunks.client_data import gather
from fedcomp.simulation.cuda_graphs.segments import Shape


@dataclass(frozen=True)
class StaticBuffers:
    """Static tensors that all graphs of a loop share.

    Attributes:
        solver, model, dataset: who steps, on what; the same in every round. hook: of the loop's first round, of which
            only the function is used.
        ids: [M] int64 client numbers. theta: [M, D]. stats: [M, C]. loss: [M], summed over steps.
        slots: the solver's memories, each [M, D]. rows, shared: copies of the hook's.
    M is how many clients there is room for; those of a round are the first ones.
    """

    solver: LocalSolver
    model: Model
    dataset: Dataset
    hook: Hook | None
    ids: Tensor
    theta: Tensor
    stats: Tensor
    loss: Tensor
    slots: tuple[Tensor, ...]
    rows: tuple[Tensor, ...]
    shared: tuple[Tensor, ...]

    @classmethod
    def like(cls, loop: LocalLoop, hook: Hook | None) -> "StaticBuffers":
        """Buffers for these clients and for some more, since cohorts may differ in size."""
        data, solver, theta, stats = loop.data, loop.solver, loop.theta, loop.stats
        num = room(len(theta))

        def rows_like(tensor: Tensor) -> Tensor:
            return tensor.new_zeros(num, *tensor.shape[1:])

        rows, shared = (hook.rows, hook.shared) if hook is not None else ((), ())
        parts = rows_like(data.ids), rows_like(theta), rows_like(stats), theta.new_zeros(num)
        copies = tuple(rows_like(one) for one in rows), tuple(one.clone() for one in shared)
        return cls(solver, cast(Model, data.model), data.dataset, hook, *parts, solver.init(parts[1]), *copies)

    @property
    def changed(self) -> list[Tensor]:
        """The buffers that a step changes."""
        return [self.theta, self.stats, self.loss, *self.slots]


def room(num_clients: int) -> int:
    """The number of clients that buffers are made for: up to an eighth more, as the next cohort may be larger."""
    step = 1 << max(num_clients.bit_length() - 4, 0)
    return -(-num_clients // step) * step


@dataclass(frozen=True)
class StaticInputs:
    """Static input tensors of one graph, by step.

    Attributes:
        sample_indices: [K, R, B] int64. step_coefficients: [K, F] those of `LocalSolver.update`.
        weight: [K, R, B] of 0 and 1 marking real samples; None: all are.
        step: [K] int64 numbers of the steps. draws, augmentation: [K, 2] int64 keys of the hook and of the samples.
    """

    sample_indices: Tensor
    step_coefficients: Tensor
    weight: Tensor | None
    step: Tensor
    draws: Tensor
    augmentation: Tensor

    @classmethod
    def of(cls, length: int, shape: Shape, num_coefficients: int, buffers: StaticBuffers) -> "StaticInputs":
        """Zeros, for `length` steps of this shape with `num_coefficients` (F) a step."""
        integers, theta = buffers.ids, buffers.theta
        size = (length, shape.rows, shape.batch)
        weight = torch.zeros(size, dtype=torch.float32, device=theta.device) if shape.masked else None
        step_coefficients, keys = theta.new_zeros(length, num_coefficients), integers.new_zeros(2, length, 2)
        return cls(integers.new_zeros(size), step_coefficients, weight, integers.new_zeros(length), keys[0], keys[1])


def static_step(buffers: StaticBuffers, inputs: StaticInputs, number: int) -> None:
    """Step `number` of a segment, in place: as a pass of the loop `step_by_step`."""
    rows = inputs.sample_indices.shape[1]
    theta, stats = buffers.theta[:rows], buffers.stats[:rows]
    weight = None if inputs.weight is None else inputs.weight[number]
    augmentation = [DeviceKey(inputs.augmentation[number])] if buffers.dataset.augments else []
    x, y = gather(buffers.dataset, inputs.sample_indices[number : number + 1], buffers.ids[:rows], augmentation)
    gradient = _gradient(buffers, inputs, number, theta, Batch(x[0], y[0], weight, stats))
    grad = gradient.grad if buffers.solver.clip_norm is None else clip(gradient.grad, buffers.solver.clip_norm)
    before = theta.clone() if weight is not None else None
    slots, coefficients = tuple(slot[:rows] for slot in buffers.slots), inputs.step_coefficients[number].unbind()
    buffers.solver.update(theta, grad, slots, coefficients)
    if before is not None and weight is not None:  # momentum and weight decay would move clients that are done
        theta.copy_(torch.where(weight[:, :1] > 0, theta, before))
    buffers.loss[:rows] += gradient.loss
    if stats.shape[1]:
        stats.copy_(gradient.stats)


def _gradient(buffers: StaticBuffers, inputs: StaticInputs, number: int, theta: Tensor, batch: Batch) -> Gradient:
    if buffers.hook is None:
        return buffers.model.gradient(theta, batch)
    reads = Reads(inputs.step[number], buffers.rows, buffers.shared, DeviceKey(inputs.draws[number]))
    return buffers.hook.function(theta, batch, reads)
