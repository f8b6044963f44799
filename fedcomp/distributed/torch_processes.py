"""Several processes in one run: `torchrun --nproc_per_node=4 -m fedcomp ...`.

All of them make the same rounds with the same keyed draws and so hold the same state; only the cohort's local work and
the test batches are split (`distributed/sharding.py`). Process 0 is the main process: only it writes files. After every
round an all-reduce on the host spreads what one process alone knows: a signal, or that a checkpoint is due.
"""

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from fedcomp.core.first_line import first_line
from fedcomp.core.pytree import flatten, restore
from fedcomp.display.console import say
from fedcomp.distributed.context import PATIENCE_SECONDS, ProcessContext, TorchrunEnv
from fedcomp.distributed.sharding import FAILURE, TorchProcessGroup
from fedcomp.records.checkpoint import Checkpoint
from fedcomp.runtime.cores import num_cores
from fedcomp.runtime.workers import Workers
from fedcomp.simulation.simulation import Simulation

LEFT = "left"


@dataclass(frozen=True)
class TorchProcesses(ProcessContext):
    """The processes of a group. `place`: which of them this is."""

    place: TorchrunEnv
    group: TorchProcessGroup

    @property
    def size(self) -> int:
        return self.place.size

    @property
    def is_main_process(self) -> bool:
        return self.place.rank == 0

    def say(self, text: str) -> None:
        if self.is_first(text):
            say(text)

    def is_first(self, text: str) -> bool:
        """Store why this process ends; False if another process failed before it, which is then the reason."""
        mine = f"{self.place.rank} {text.removeprefix('error: ')}"
        try:
            return self.group.store.compare_set(FAILURE, "", mine).decode() == mine
        except RuntimeError:  # the store was with process 0, which is gone
            return True

    def device(self, device: torch.device) -> torch.device:
        if device.type == "cpu":
            return device
        if device.index is not None:
            raise ValueError(f"device={device} is one GPU for {self.place.size} processes: give device=cuda")
        if self.place.local_rank >= torch.cuda.device_count():
            raise ValueError(
                f"{self.place.local_size} processes on a machine with {torch.cuda.device_count()} GPUs: start one "
                "for each GPU (torchrun --nproc_per_node), or give device=cpu"
            )
        own = torch.device("cuda", self.place.local_rank)
        torch.cuda.set_device(own)
        return own

    def broadcast_object(self, value: Any) -> Any:
        return self.group.broadcast_object(value)

    @contextlib.contextmanager
    def main_process_first(self) -> Iterator[None]:
        if self.place.local_rank > 0:
            self.group.all_reduce_max(0)  # a barrier: matched by the call below of the first process
        yield
        if self.place.local_rank == 0:
            self.group.all_reduce_max(0)

    def distribute(self, simulation: Simulation, chunk_size: int | None, threads: int | None) -> Simulation:
        """The chunk size stays that of one process. Chosen for a GPU's free memory, it is cut to even parts."""
        on_gpu = simulation.device.type == "cuda"
        at_once = -self.group.all_reduce_max(-simulation.chunk_size)[0]
        if on_gpu and chunk_size is None:
            at_once = min(at_once, math.ceil(max(1, math.ceil(simulation.expected_cohort)) / self.place.size))
        group = replace(self.group, device=simulation.device, rows=_nccl()) if on_gpu else self.group
        num = 1 if on_gpu else threads or max(1, num_cores() // self.place.local_size)
        return replace(simulation, chunk_size=at_once, workers=Workers(num), group=group)

    def describe_split(self, simulation: Simulation) -> str:
        size, cohort = self.place.size, max(1, math.ceil(simulation.expected_cohort))
        if size > cohort:
            idle = f"at least {size - cohort} of them train nobody and only share the test set"
            return f"{size} processes share cohorts of {cohort} clients: {idle}; start {cohort} or fewer"
        chunks = math.ceil(cohort / simulation.chunk_size)
        shared = f"{size} processes share cohorts of {cohort} clients, {simulation.chunk_size} at once"
        if chunks >= size:
            return shared
        even = math.ceil(cohort / size)
        return f"{shared}: that is work for {chunks} of them, chunk_size={even} gives more of them some"

    def broadcast_checkpoint(self, start: Checkpoint) -> Checkpoint:
        known = start.round, dict(start.ledger), start.seconds, start.open_ended
        done, ledger, seconds, open_ended = self.group.broadcast_object(known)
        if not done:  # every process makes the first state itself
            return start
        tensors = {
            name: self.group.broadcast(
                tensor.contiguous() if self.is_main_process else torch.empty_like(tensor).contiguous(), 0
            )
            for name, tensor in flatten(start.state).items()
        }
        return Checkpoint(done, restore(start.state, tensors), ledger, seconds, open_ended=open_ended)

    def all_reduce_flags(self, stop: int | None, due: bool) -> tuple[int | None, bool]:
        heard, wanted = self.group.all_reduce_max(stop or 0, int(due and self.is_main_process))
        return heard or None, bool(wanted)

    def check_in_sync(self, state: Any) -> None:
        own = checksum(state)
        largest, negative = self.group.all_reduce_max(own, -own)
        if largest != -negative:
            raise ValueError(
                "the processes no longer hold the same state, so their devices or libraries round differently: "
                "run them on machines of one kind; the last checkpoint holds"
            )


@contextlib.contextmanager
def init_processes(place: TorchrunEnv) -> Iterator[TorchProcesses]:
    """The process group, closed at the end so that one process prints the error and process 0 finishes its files."""
    store, _, _ = next(iter(dist.rendezvous("env://")))
    store = dist.PrefixStore(f"fedcomp/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.size)
    processes = TorchProcesses(place, TorchProcessGroup(place.rank, place.size, store))
    try:
        yield processes
    except SystemExit:
        raise
    except BaseException as error:
        if not processes.is_first(first_line(error)):
            raise SystemExit(1) from None
        raise
    finally:
        _leave(place, store)


def _leave(place: TorchrunEnv, store: dist.Store) -> None:
    """Leave the group. After a failure, destroy it first so that blocked peers raise."""
    patience = time.monotonic() + PATIENCE_SECONDS
    with contextlib.suppress(RuntimeError):  # the store is gone if process 0 is
        if store.check([FAILURE]):
            dist.destroy_process_group()
        if place.rank == 0:
            store.set(LEFT, "")
        while not store.check([LEFT]) and time.monotonic() < patience:
            time.sleep(0.02)
    if dist.is_initialized():
        dist.destroy_process_group()


def checksum(state: Any) -> int:
    """A number that changes with (nearly) any bit of a state."""
    total = 0
    for tensor in flatten(state).values():
        octets = tensor.contiguous().view(-1).view(torch.uint8)
        whole = octets.numel() % 4 == 0 and octets.storage_offset() % 4 == 0
        words = octets.view(torch.int32) if whole else octets
        total = (31 * total + int(words.sum(dtype=torch.int64))) % (1 << 61)
    return total


def _nccl() -> dist.ProcessGroup:
    group = dist.new_group(backend="nccl")
    assert isinstance(group, dist.ProcessGroup)
    return group
