"""Whether a run fits into memory, asked before anything large is allocated.

Shape legend: M clients of the cohort, N clients in all, D parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Algorithm, Setup
from fedcomp.core.free_memory import free_bytes
from fedcomp.core.pytree import flatten
from fedcomp.dataset.contract import Dataset
from fedcomp.model.chunking import client_bytes
from fedcomp.model.contract import AnyModel, tensors_of
from fedcomp.random.keys import Key
from fedcomp.simulation.memory.probe import probe
from fedcomp.simulation.simulation import Simulation

GIB = 2.0**30
MOST_ROWS = 20
"""More rows of D floats than any method holds for a client of its cohort."""
PROBE_ROWS = 8 * MOST_ROWS
"""More than the rounds of a handful of clients hold."""
FAR = 4
"""A run whose upper estimate is this many times below the free memory is not probed."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a run takes beside what the process holds already.

    Attributes:
        state: once, of all repetitions. rest: rows of the cohort, local training, on a GPU the data too.
    """

    state: int
    rest: int

    @property
    def total(self) -> int:
        return self.state + self.rest


def state_bytes(algorithm: Algorithm, model: AnyModel, num_clients: int) -> dict[str, int]:
    """Bytes of every part of the algorithm's state, without allocating it."""
    theta, stats = torch.empty(model.dim, device="meta"), torch.empty(model.num_stats, device="meta")
    setup = Setup(num_clients, tensors_of(model), Key())
    return {name: _bytes(tensor) for name, tensor in flatten(algorithm.init(theta, stats, setup)).items()}


def check_memory(
    simulation: Simulation, cohort: int, batch_size: int, device: torch.device, repeats: int = 1
) -> MemoryNeed | None:
    """Raise ValueError if a run needs more memory than there is; what it needs, None if that is far below it.

    Args:
        simulation: on the CPU. cohort: M. batch_size: of a client's step. device: where it is to run.
        repeats: repetitions, each with a state of its own.
    """
    num_clients, model, free = len(simulation.shards.sizes), simulation.model, free_bytes(device)
    parts = state_bytes(simulation.algorithm, model, num_clients)
    state = repeats * sum(parts.values())
    row = 4 * model.dim
    data = _data_bytes(simulation.dataset) if device.type == "cuda" else 0
    if FAR * (2 * state + MOST_ROWS * cohort * row + data) < free:
        return None
    if state + cohort * row + data > free or PROBE_ROWS * row > free / FAR:
        least = MemoryNeed(state, cohort * row + data)
        if least.total > free:
            raise ValueError(_refusal("more than", least, parts, cohort, model.dim, device, free))
        return None
    need = needed(simulation, cohort, batch_size, device, repeats)
    if need.total > free:
        raise ValueError(_refusal("about", need, parts, cohort, model.dim, device, free))
    return need


def needed(simulation: Simulation, cohort: int, batch_size: int, device: torch.device, repeats: int = 1) -> MemoryNeed:
    """What a run takes, from rounds of a handful of clients: within 20 per cent of what was measured on a CPU."""
    num_clients, model, dataset = len(simulation.shards.sizes), simulation.model, simulation.dataset
    state = sum(state_bytes(simulation.algorithm, model, num_clients).values())
    on_cpu = device.type == "cpu"  # elsewhere an evaluation may still read the state before a round
    round_bytes = probe(simulation, num_clients, cohort, donate_state=on_cpu).of(num_clients, cohort)
    at_once = min(simulation.chunk_size * simulation.workers.num, cohort)
    training = at_once * client_bytes(model, dataset.input_shape, batch_size)
    data = 0 if on_cpu else _data_bytes(dataset)
    return MemoryNeed(repeats * state, max(0, round_bytes - state) + training + data)


def _refusal(
    how: str, need: MemoryNeed, parts: dict[str, int], cohort: int, dim: int, device: torch.device, free: int
) -> str:
    largest = max(parts, key=lambda name: parts[name])
    return (
        f"the run needs {how} {need.total / GIB:.1f} GiB on {device.type} but {free / GIB:.1f} GiB are free: "
        f"state {need.state / GIB:.2f} GiB (most of it {largest}), a round of {cohort} x {dim:,} parameters "
        f"{need.rest / GIB:.2f} GiB; take fewer clients a round, a smaller model, or a method without client memories"
    )


def _data_bytes(dataset: Dataset) -> int:
    return sum(_bytes(tensor) for part in (dataset.train, dataset.test) for tensor in (part.x, part.y))


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
