"""Whether a run fits into memory, asked before anything large is allocated.

A round holds rows of D parameters for each of its clients; how many depends on the method and its compressors: 2 for
plain FedAvg, 8 for CSER. So the bytes of all live tensors are counted in three tiny rounds of the same method and
model, with a handful of clients (M and N in about the run's proportion). The peak is linear in M and N as
long as it occurs at the same moment of the round, so that these rounds give it for any number of clients.

Shape legend: M clients of the cohort, N clients in all, D parameters.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedcomp.algorithm.contract import Algorithm, Setup
from fedcomp.core.cohort import Cohort
from fedcomp.core.free_memory import free_bytes
from fedcomp.core.pytree import flatten
from fedcomp.model.chunking import client_bytes, forward_bytes
from fedcomp.model.contract import AnyModel, TaskModel, frozen_of, tensors_of
from fedcomp.random.keys import Key
from fedcomp.runtime.workers import Workers
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.evaluation import samples_at_once
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

MOST_IDLE = 16
"""Largest N / M of the tiny rounds."""
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
        state: once, of all repetitions.
        rest: the more of a round (rows of the cohort, local training) and an evaluation; on a GPU the data and the
            frozen tensors too.
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
    """Returns what a run needs, None if that is far below the free memory. Raises ValueError: it is above it.

    Args:
        simulation: on the CPU. cohort: M. batch_size: of a client's step. device: where it is to run.
        repeats: repetitions, each with a state of its own.
    """
    num_clients, model, free = len(simulation.shards.sizes), simulation.model, free_bytes(device)
    parts = state_bytes(simulation.algorithm, model, num_clients)
    state = repeats * sum(parts.values())
    row = 4 * model.dim
    data = _moved_bytes(simulation) if device.type == "cuda" else 0
    evaluation = _evaluation_bytes(simulation, device)
    if FAR * (2 * state + MOST_ROWS * cohort * row + data + evaluation) < free:
        return None
    if state + max(cohort * row, evaluation) + data > free or PROBE_ROWS * row > free / FAR:
        least = MemoryNeed(state, max(cohort * row, evaluation) + data)
        if least.total > free:
            raise ValueError(_refusal("more than", least, parts, cohort, model.dim, device, free))
        return None
    need = needed(simulation, cohort, batch_size, device, repeats)
    if need.total > free:
        raise ValueError(_refusal("about", need, parts, cohort, model.dim, device, free))
    return need


def needed(simulation: Simulation, cohort: int, batch_size: int, device: torch.device, repeats: int = 1) -> MemoryNeed:
    """What a run needs, estimated from tiny rounds; within 20 percent of what was measured on a CPU."""
    num_clients, model, dataset = len(simulation.shards.sizes), simulation.model, simulation.dataset
    state = sum(state_bytes(simulation.algorithm, model, num_clients).values())
    on_cpu = device.type == "cpu"  # elsewhere an evaluation may still read the state before a round
    round_bytes = probe(simulation, num_clients, cohort, donate_state=on_cpu).of(num_clients, cohort)
    at_once = min(simulation.chunk_size * simulation.workers.num, cohort)
    training = at_once * client_bytes(model, dataset.input_shape, batch_size, dataset.input_dtype)
    data = 0 if on_cpu else _moved_bytes(simulation)
    a_round = max(0, round_bytes - state) + training
    return MemoryNeed(repeats * state, max(a_round, _evaluation_bytes(simulation, device)) + data)


def _refusal(
    how: str, need: MemoryNeed, parts: dict[str, int], cohort: int, dim: int, device: torch.device, free: int
) -> str:
    largest = max(parts, key=lambda name: parts[name])
    return (
        f"the run needs {how} {need.total / GIB:.1f} GiB on {device.type} but {free / GIB:.1f} GiB are free: "
        f"state {need.state / GIB:.2f} GiB (most of it {largest}), a round of {cohort} x {dim:,} parameters "
        f"or an evaluation {need.rest / GIB:.2f} GiB; take fewer clients a round, a smaller model, smaller samples, or "
        "a method without client memories"
    )


def _evaluation_bytes(simulation: Simulation, device: torch.device) -> int:
    """Of the batches of test samples that are computed at once."""
    model, dataset = simulation.model, simulation.dataset
    if isinstance(model, TaskModel):
        return 0
    batch = min(samples_at_once(dataset, device), len(dataset.test))
    at_once = min(simulation.workers.num, -(-len(dataset.test) // batch))
    return at_once * forward_bytes(model, dataset.input_shape, batch, dataset.input_dtype)


def _moved_bytes(simulation: Simulation) -> int:
    """What a GPU gets a copy of: the data and the model's frozen tensors."""
    data = [tensor for part in (simulation.dataset.train, simulation.dataset.test) for tensor in (part.x, part.y)]
    return sum(map(_bytes, [*data, *frozen_of(simulation.model).values()]))


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@dataclass(frozen=True)
class RoundBytes:
    """Most bytes of tensors that live at once in a round, its state included.

    Attributes:
        fixed: whatever the clients. per_participant: for each of the M. per_client: for each of the N.
    """

    fixed: float
    per_participant: float
    per_client: float

    def of(self, num_clients: int, num_participants: int) -> int:
        """For N and M."""
        return int(self.fixed + self.per_participant * num_participants + self.per_client * num_clients)


def probe(simulation: Simulation, num_clients: int, num_participants: int, donate_state: bool) -> RoundBytes:
    """The bytes of a round, from tiny rounds whose clients have one sample each and are trained one after another.

    Args:
        simulation: with everything on the CPU. num_clients, num_participants: N and M of the run.
        donate_state: see `Simulation.round`.
    """

    def peak(num_clients: int, num_participants: int) -> int:
        return _peak(_tiny(simulation, num_clients, num_participants), donate_state)

    _peak(_tiny(simulation, 2, 2), donate_state)  # in which accelerated forms prove themselves, which takes memory
    if num_clients == num_participants:
        two, four = peak(2, 2), peak(4, 4)
        return RoundBytes(2 * two - four, 0, (four - two) / 2)
    some = 2 * min(max(num_clients // num_participants, 2), MOST_IDLE)
    first, more, others = peak(some, 2), peak(some, 3), peak(some + 4, 2)
    per_participant, per_client = more - first, (others - first) / 4
    return RoundBytes(first - 2 * per_participant - some * per_client, per_participant, per_client)


@dataclass(frozen=True)
class FirstClients:
    """The first so many clients take part, with equal weights."""

    num: int

    def check(self, num_clients: int) -> None:
        """Any number will do."""

    def sample(self, key: Key, importance: Tensor, round_index: int = 0) -> Cohort:
        return Cohort.of(range(self.num), torch.full((self.num,), 1 / self.num))

    def inclusion(self, num_clients: int, round_index: int = 0) -> Tensor:
        return (torch.arange(num_clients) < self.num).to(torch.float64)

    def metrics(self, num_clients: int, round_index: int) -> dict[str, float]:
        return {}


def _tiny(simulation: Simulation, num_clients: int, num_participants: int) -> Simulation:
    num = len(simulation.dataset.train)
    shards = ClientShards.of([torch.tensor([client % num]) for client in range(num_clients)], torch.device("cpu"))
    return replace(
        simulation,
        shards=shards,
        participation=FirstClients(num_participants),
        chunk_size=1,
        workers=Workers(1),
        rounds=2,
    )


def _peak(simulation: Simulation, donate_state: bool) -> int:
    live = LiveTensors()
    with live:
        state = simulation.init()
        live.note(state)
        simulation.round(0, state, Ledger(), donate_state)
    return live.peak


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of the tensors that operations read or make, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._bytes = 0
        self._known: dict[int, weakref.finalize[Any, Any]] = {}

    def note(self, value: Any) -> None:
        """Count the tensors in a tree of tuples, lists and dictionaries that are not counted yet."""
        if isinstance(value, Tensor):
            self._note(value.untyped_storage())
        elif isinstance(value, (tuple, list)):
            for one in value:
                self.note(one)
        elif isinstance(value, dict):
            self.note(list(value.values()))

    def _note(self, storage: torch.UntypedStorage) -> None:
        name, size = storage._cdata, storage.nbytes()
        if name in self._known or storage.device.type == "meta":
            return

        def forget() -> None:
            self._bytes -= size
            del self._known[name]

        self._bytes += size
        self.peak = max(self.peak, self._bytes)
        self._known[name] = weakref.finalize(storage, forget)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.note(result)
        return result
