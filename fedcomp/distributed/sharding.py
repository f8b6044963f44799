"""A cohort split over processes: each trains whole chunks of it, then all of them hold every client's results.

`simulation/chunks/executor.py` has the loop; this is who trains which chunk, and how the rows reach the others. The
chunks are those of one process, and what is gathered is bytes, so a run is the same bit for bit for any number of
processes. Algorithms and codecs know nothing of them: every process makes the same round, with the same keyed draws, on
the same rows.

Shape legend: R clients of the cohort, trained by one process.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fedcomp.core.pytree import map_tensors
from fedcomp.runtime.workers import ProcessGroup, names_of_all

CPU = torch.device("cpu")
FAILURE = "failure"
"""Key of the store under which the first process that failed says why."""


class PeerLost(ValueError):
    """Another process of the run is gone, so this one cannot go on."""


@dataclass(frozen=True)
class TorchProcessGroup(ProcessGroup):
    """The processes of a run, as one of them sees them.

    Attributes:
        rank, size: which of how many.
        store: holds what a process that fails has to say; outlives that process under torchrun.
        device: of the rows.
        rows: carries rows on the run's device (NCCL); None: torch's default group does, as it does what the host knows
            (gloo). Do not store the default group here: a reference keeps its connections open.
    """

    rank: int
    size: int
    store: dist.Store
    device: torch.device = CPU
    rows: dist.ProcessGroup | None = None

    def split(self, pieces: Sequence[np.ndarray], cost: Callable[[np.ndarray], int]) -> list[list[np.ndarray]]:
        shares: list[list[np.ndarray]] = [[] for _ in range(self.size)]
        for rank, piece in zip(balance_load([cost(piece) for piece in pieces], self.size), pieces, strict=True):
            shares[rank].append(piece)
        return shares

    def gather(self, rows: Any, shares: Sequence[Sequence[np.ndarray]]) -> Any:
        """All rows, the others written into `rows`. Raises PeerLost: another process is gone."""
        makers = {rank: _places(own, self.device) for rank, own in enumerate(shares) if own}
        if len(makers) < self.size:
            rows = self._allocated(rows, min(makers))

        def whole(tensor: Tensor) -> Tensor:
            for rank, where in makers.items():
                if rank == self.rank:
                    self.broadcast(tensor.index_select(0, where), rank)
                else:
                    part = tensor.new_empty(len(where), *tensor.shape[1:])
                    tensor.index_copy_(0, where, self.broadcast(part, rank))
            return tensor

        return map_tensors(whole, rows)

    def common(self, names: list[str] | None) -> list[str] | None:
        every = [self.broadcast_object(names, rank) for rank in range(self.size)]
        return names_of_all([one for one in every if one is not None])

    def sum_on_host(self, counts: np.ndarray) -> np.ndarray:
        whole = torch.from_numpy(counts.astype(np.int64))
        with self.peer_errors():
            dist.all_reduce(whole)
        return whole.numpy()

    def sum_rows(self, counts: np.ndarray | Tensor) -> np.ndarray | Tensor:
        """The sum; a tensor if the rows lie on a GPU, which is not waited for."""
        whole = torch.as_tensor(counts).to(self.device, non_blocking=True)
        with self.peer_errors():
            dist.all_reduce(whole, group=self.rows)
        return whole.numpy() if self.device.type == "cpu" else whole

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
        except RuntimeError:
            raise PeerLost(self._why()) from None  # no error in the code that was waiting for the other process

    def _why(self) -> str:
        with contextlib.suppress(RuntimeError):  # the store is gone with its process
            if self.store.check([FAILURE]):
                rank, _, words = self.store.get(FAILURE).decode().partition(" ")
                return f"process {rank} of {self.size} failed: {words}"
        lost = f"another of the {self.size} processes was killed or cannot be reached"
        return f"{lost}; the last checkpoint holds, the same command resumes it"

    def _allocated(self, rows: Any, source: int) -> Any:
        """`rows`; where they are None, new ones with the shapes and dtypes that `source` has."""
        shapes = None
        if rows is not None:
            shapes = map_tensors(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"), rows)
        shapes = self.broadcast_object(shapes, source)
        return rows if rows is not None else map_tensors(lambda one: torch.empty_like(one, device=self.device), shapes)


def _places(pieces: Sequence[np.ndarray], device: torch.device) -> Tensor:
    """[R] int64: the rows of all `pieces`."""
    return torch.from_numpy(np.concatenate(pieces)).to(device, non_blocking=True)


def balance_load(costs: Sequence[int], size: int) -> list[int]:
    """The rank of `size` processes that computes each piece.

    Greedy LPT: assigns each piece, most expensive first, to the least-loaded process.
    """
    load, owner = [0] * size, [0] * len(costs)
    for piece in sorted(range(len(costs)), key=lambda index: -costs[index]):
        owner[piece] = min(range(size), key=load.__getitem__)
        load[owner[piece]] += costs[piece]
    return owner
