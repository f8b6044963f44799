"""The bytes that a round of a method holds at once, counted in tiny rounds.

A round holds rows of D parameters for each of its clients; how many depends on the method and its compressors: 2 for
plain FedAvg, 8 for CSER. So the bytes of all live tensors are counted in three tiny rounds of the same method and
model, with a handful of clients (M and N in about the run's proportion). The peak is linear in M and N as
long as it occurs at the same moment of the round, so that these rounds give it for any number of clients.

Shape legend: M clients of the cohort, N clients in all, D parameters.
"""

import math
import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedcomp.participation.uniform import Uniform
from fedcomp.runtime.workers import Workers
from fedcomp.simulation.chunks.client_data import ClientShards
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger

MOST_IDLE = 16
"""Largest N / M of the tiny rounds."""


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


def _tiny(simulation: Simulation, num_clients: int, num_participants: int) -> Simulation:
    num = len(simulation.dataset.train)
    shards = ClientShards.of([torch.tensor([client % num]) for client in range(num_clients)], torch.device("cpu"))
    return replace(
        simulation, shards=shards, participation=Uniform(num_participants), chunk_size=1, workers=Workers(1), rounds=2
    )


def _peak(simulation: Simulation, donate_state: bool) -> int:
    live = LiveTensors()
    with live:
        state = simulation.init()
        live.note(state)
        simulation.round(0, state, Ledger(), donate_state)
    return live.peak


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of the tensors that operations read or make, while they live.

    Raises MemoryError where these are more than `most` at once.
    """

    def __init__(self, most: float = math.inf) -> None:
        super().__init__()
        self.most = most
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
        if self._bytes > self.most:
            raise MemoryError

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise torch loads its compilers, some 130 MiB, to keep them out of the next method."""
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.note(result)
        return result
