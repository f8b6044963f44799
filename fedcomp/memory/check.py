"""Whether a run fits into memory, asked before anything large is allocated.

A run whose coarse upper estimate is far below the free memory fits, and one whose lower estimate is above it does not.
Between the two, tiny rounds of the run decide (`probe.py`).

Shape legend: M clients of the cohort, D parameters.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedcomp.core.free_memory import free_bytes
from fedcomp.core.pytree import flatten
from fedcomp.memory.probe import LiveTensors, probe
from fedcomp.model.chunking import client_bytes, forward_bytes
from fedcomp.model.contract import TaskModel, frozen_of
from fedcomp.simulation.evaluation import samples_at_once
from fedcomp.simulation.simulation import Simulation

GIB = 2.0**30
MOST_ROWS = 20
"""More rows of D floats than any method holds for a client of its cohort."""
PROBE_ROWS = 8 * MOST_ROWS
"""More than the rounds of a handful of clients hold."""
SMALL = 1 << 22
"""Clients times parameters up to which a state is made to be weighed: for `meta` tensors, without values, torch imports
its compiler, which takes 1.5 s."""
MOST = 1 << 28
"""Bytes at which the making of such a state ends, as of one that grows with the square of D."""
FAR = 4
"""A run whose upper estimate is this many times below the free memory is not probed."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a run takes beside what the process holds already.

    Attributes:
        state: once, of all repetitions.
        rest: the more of a round (rows of the cohort, local training) and an evaluation; on a GPU the data and the
            frozen tensors too.
    """

    state: int
    rest: int

    @property
    def total(self) -> int:
        return self.state + self.rest


def state_bytes(simulation: Simulation, num_clients: int) -> dict[str, int]:
    """Bytes of every part of the algorithm's state, which is allocated only where it is small."""
    model, setup = simulation.model, simulation.setup(num_clients)

    def parts(made: Callable[[int], Tensor]) -> dict[str, int]:
        state = simulation.algorithm.init(made(model.dim), made(model.num_stats), setup)
        return {name: tensor.nbytes for name, tensor in flatten(state).items()}

    if num_clients * model.dim <= SMALL:
        with contextlib.suppress(MemoryError, RuntimeError), LiveTensors(MOST):
            return parts(partial(torch.linspace, -1, 1))
    return parts(partial(torch.empty, device="meta"))


def check_memory(
    simulation: Simulation, cohort: int, batch_size: int, device: torch.device, repeats: int = 1
) -> MemoryNeed | None:
    """Returns what a run needs, None if that is far below the free memory. Raises ValueError: it is above it.

    Args:
        simulation: on the CPU. cohort: M. batch_size: of a client's step. device: where it is to run.
        repeats: repetitions, each with a state of its own.
    """
    num_clients, free = len(simulation.shards.sizes), free_bytes(device)
    parts = state_bytes(simulation, num_clients)
    state, row = repeats * sum(parts.values()), 4 * simulation.model.dim
    data, evaluation = _moved_bytes(simulation, device), _evaluation_bytes(simulation, device)
    if FAR * (2 * state + MOST_ROWS * cohort * row + data + evaluation) < free:
        return None
    how, need = "more than", MemoryNeed(state, max(cohort * row, evaluation) + data)
    probed = need.total <= free and PROBE_ROWS * row <= free / FAR
    if probed:
        how, need = "about", needed(simulation, cohort, batch_size, device, repeats)
    if need.total > free:
        raise ValueError(
            f"the run needs {how} {need.total / GIB:.1f} GiB on {device.type} but {free / GIB:.1f} GiB are free: state "
            f"{need.state / GIB:.2f} GiB (most of it {max(parts, key=parts.__getitem__)}), a round of {cohort} x "
            f"{simulation.model.dim:,} parameters or an evaluation {need.rest / GIB:.2f} GiB; take fewer clients a "
            "round, a smaller model, smaller samples, or a method without client memories"
        )
    return need if probed else None


def needed(simulation: Simulation, cohort: int, batch_size: int, device: torch.device, repeats: int = 1) -> MemoryNeed:
    """What a run needs, estimated from tiny rounds; within 20 percent of what was measured on a CPU."""
    num_clients, model, dataset = len(simulation.shards.sizes), simulation.model, simulation.dataset
    state = sum(state_bytes(simulation, num_clients).values())
    on_cpu = device.type == "cpu"  # elsewhere an evaluation may still read the state before a round
    round_bytes = probe(simulation, num_clients, cohort, donate_state=on_cpu).of(num_clients, cohort)
    at_once = min(simulation.chunk_size * simulation.workers.num, cohort)
    training = at_once * client_bytes(model, dataset.input_shape, batch_size, dataset.input_dtype)
    a_round = max(0, round_bytes - state) + training
    return MemoryNeed(
        repeats * state, max(a_round, _evaluation_bytes(simulation, device)) + _moved_bytes(simulation, device)
    )


def _evaluation_bytes(simulation: Simulation, device: torch.device) -> int:
    """Of the batches of test samples that are computed at once."""
    model, dataset = simulation.model, simulation.dataset
    if isinstance(model, TaskModel):
        return 0
    batch = min(samples_at_once(model, dataset, device), len(dataset.test))
    at_once = min(simulation.workers.num, -(-len(dataset.test) // batch))
    return at_once * forward_bytes(model, dataset.input_shape, batch, dataset.input_dtype)


def _moved_bytes(simulation: Simulation, device: torch.device) -> int:
    """What a GPU gets a copy of: the data and the model's frozen tensors."""
    if device.type == "cpu":
        return 0
    data = [tensor for part in (simulation.dataset.train, simulation.dataset.test) for tensor in (part.x, part.y)]
    return sum(tensor.nbytes for tensor in [*data, *frozen_of(simulation.model).values()])
