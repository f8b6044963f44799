"""A cohort split over processes: each trains whole chunks of it, then all of them hold every client's results.

The chunks are those of one process, and what is gathered is bytes, so a run is the same bit for bit for any number of
processes. Algorithms and codecs know nothing of them: every process makes the same round, with the same keyed draws, on
the same rows.

Shape legend: M clients of the cohort, R of them trained by one process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fedcomp.client.contract import Batching
from fedcomp.core.cohort import Cohort
from fedcomp.core.pytree import map_tensors
from fedcomp.runtime.workers import Piece, Result, Workers
from fedcomp.simulation.chunks.batch_schedule import num_steps
from fedcomp.simulation.chunks.executor import Executor, total

FAILURE = "failure"
"""Key of the store under which the first process that failed says why."""


class PeerLost(ValueError):
    """Another process of the run is gone, so this one cannot go on."""


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run, as one of them sees them.

    Attributes:
        rank, size: which of how many.
        store: holds what a process that fails has to say; outlives that process under torchrun.
        rows: carries rows on the run's device (NCCL); None: torch's default group does, as it does what the host knows
            (gloo). Do not store the default group here: a reference keeps its connections open.
    """

    rank: int
    size: int
    store: dist.Store
    rows: dist.ProcessGroup | None = None

    def gather(self, mine: Any, places: Sequence[Tensor]) -> Any:
        """Every process's rows, in the order of the cohort.

        Args:
            mine: this process's results, a tree of tensors [R, ...] of any dtypes; None where it has no rows.
            places: for each process, the places [R] of its rows among the M, on the device of the rows.
        Returns:
            a tree of tensors [M, ...], the same everywhere.
        Raises:
            PeerLost: another process is gone.
        """
        num_rows = sum(map(len, places))
        makers = [rank for rank, where in enumerate(places) if len(where)]
        if len(makers) < self.size:
            mine = self._built_alike(mine, makers[0], places[self.rank].device)

        def whole(rows: Tensor) -> Tensor:
            gathered = rows.new_empty(num_rows, *rows.shape[1:])
            for rank in makers:
                where = places[rank]
                part = rows.contiguous() if rank == self.rank else rows.new_empty(len(where), *rows.shape[1:])
                gathered.index_copy_(0, where, self.broadcast(part, rank))
            return gathered

        return map_tensors(whole, mine)

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        """`tensor` (contiguous), overwritten by the one of `source`."""
        if tensor.numel():
            with self.peer_errors():
                dist.broadcast(tensor.view(-1).view(torch.uint8), source, group=self.rows)
        return tensor

    def all_reduce_max(self, *values: int) -> list[int]:
        """The largest of every process's value, one by one. On the host: no device waits for it."""
        flags = torch.tensor(values)
        with self.peer_errors():
            dist.all_reduce(flags, dist.ReduceOp.MAX)
        return flags.tolist()

    def broadcast_object(self, value: Any, source: int = 0) -> Any:
        """The value of rank `source`, a small Python object."""
        box = [value]
        with self.peer_errors():
            dist.broadcast_object_list(box, source)
        return box[0]

    @contextlib.contextmanager
    def peer_errors(self) -> Iterator[None]:
        """Convert torch's error about a lost process to `PeerLost`, with the error of that process if it left one."""
        try:
            yield
        except RuntimeError as error:
            raise PeerLost(self._why()) from error

    def _why(self) -> str:
        with contextlib.suppress(RuntimeError):  # the store is gone with its process
            if self.store.check([FAILURE]):
                rank, _, words = self.store.get(FAILURE).decode().partition(" ")
                return f"process {rank} of {self.size} failed: {words}"
        lost = f"another of the {self.size} processes was killed or cannot be reached"
        return f"{lost}; the last checkpoint holds, the same command resumes it"

    def _built_alike(self, mine: Any, source: int, device: torch.device) -> Any:
        """`mine`; where it is None, a tree of 0 rows with the shapes and dtypes that `source` has."""
        none = (
            None if mine is None else map_tensors(lambda rows: rows.new_empty(0, *rows.shape[1:], device="cpu"), mine)
        )
        none = self.broadcast_object(none, source)
        return mine if mine is not None else map_tensors(lambda rows: rows.to(device), none)


@dataclass(frozen=True, kw_only=True)
class SharedExecutor(Executor):
    """Trains this process's chunks, and gathers the results of all processes.

    Attributes:
        group: the processes. batching: what clients do in a round; None: they go through their samples once.
    """

    group: ProcessGroup
    batching: Batching | None = None

    def _run(self, work: Callable[..., Any], cohort: Cohort, *rows: Tensor) -> Any:
        sizes = self.shards.sizes[list(cohort.clients)]
        chunks = self.chunks(sizes)
        owner = balance_load([self._cost(sizes[chunk]) for chunk in chunks], self.group.size)
        shared: list[list[np.ndarray]] = [[] for _ in range(self.group.size)]
        for rank, chunk in zip(owner, chunks, strict=True):
            shared[rank].append(chunk)

        def work_on(chunk: np.ndarray) -> Any:
            data, _, result = self.work_on(work, cohort, sizes, rows, chunk)
            return result, _first_of(total(data.computed), len(chunk), cohort.ids.device)

        parts = list(self.workers.map(work_on, shared[self.group.rank]))
        mine = map_tensors(lambda *tensors: torch.cat(tensors), *parts) if parts else None
        places = [np.concatenate([*own, np.empty(0, np.int64)]).astype(np.int64) for own in shared]
        device = cohort.ids.device
        result, computed = self.group.gather(
            mine, [torch.from_numpy(own).to(device, non_blocking=True) for own in places]
        )
        self._count([computed.sum() if device.type == "cuda" else int(computed.sum())])
        return result

    def _cost(self, sizes: np.ndarray) -> int:
        """Steps of clients with `sizes` samples; samples, if nobody says how they are batched."""
        return int((sizes if self.batching is None else num_steps(sizes, self.batching)).sum())


def _first_of(count: int | Tensor, num: int, device: torch.device) -> Tensor:
    """[num] int64: a chunk's count in its first row, so that it is gathered with the others."""
    rows = torch.zeros(num, dtype=torch.int64, device=device)
    rows[0] = count
    return rows


class SharedWorkers(Workers):
    """Splits pieces over processes and over `num` threads of each; results must be tensors of one shape and dtype."""

    def __init__(self, num: int, group: ProcessGroup) -> None:
        super().__init__(num)
        self._group = group

    def map(self, function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Iterable[Result]:
        """`function` of every piece, in their order; each process computes all of them where they are few."""
        rank, size = self._group.rank, self._group.size
        if len(pieces) < size:
            return super().map(function, pieces)
        mine: list[Any] = list(super().map(function, pieces[rank::size]))
        places = [torch.arange(other, len(pieces), size, device=mine[0].device) for other in range(size)]
        return self._group.gather(torch.stack(mine), places).unbind()


def balance_load(costs: Sequence[int], size: int) -> list[int]:
    """The rank of `size` processes that computes each piece.

    Greedy LPT: assigns each piece, most expensive first, to the least-loaded process.
    """
    load, owner = [0] * size, [0] * len(costs)
    for piece in sorted(range(len(costs)), key=lambda index: -costs[index]):
        owner[piece] = min(range(size), key=load.__getitem__)
        load[owner[piece]] += costs[piece]
    return owner
