"""Runs the clients' work in chunks, which threads and processes share.

The chunk size changes no draw, and no message but for rounding; how many threads and processes share the chunks changes
no bit.

Shape legend: M clients of the cohort.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import Batching, LocalResult, LoopRunner
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.core.pytree import map_tensors
from fedcomp.core.to_device import to_device
from fedcomp.dataset.contract import Dataset
from fedcomp.model.contract import AnyModel, tensors_of
from fedcomp.model.lora.moved import moved
from fedcomp.random.keys import Key
from fedcomp.runtime.workers import ProcessGroup, Workers
from fedcomp.simulation.chunks.batch_schedule import num_steps
from fedcomp.simulation.chunks.client_data import ClientChunk, ClientShards


@dataclass(frozen=True)
class Executor:
    """Implements `Clients` for one round.

    Attributes:
        dataset, shards, model: the data, which samples each client has, and what is trained.
        key: names the round's draws.
        chunk_size: clients trained at once; at least 1. workers: threads that share the chunks.
        dtype: in which clients compute. Rows are float32 before and after, as messages are.
        count: callback that receives the component gradients of all clients together, after each `map_clients`.
        loop_runner: replays local loops as CUDA graphs, or None.
        group: the processes that share the chunks.
        batching: how clients go through their samples, from which the cost of a chunk is estimated; None: once.
        count_each: as `count`, of each client: the cohort, and [M], or an int if all computed as many.
        may_fail: the caller catches errors of local work and continues in another way. If the work of one process
            fails, all processes then raise an error, so that none waits for it in a collective.
        results: of the clients trained so far; if the round fails, its error names a client whose result is not finite.
    """

    dataset: Dataset
    shards: ClientShards
    model: AnyModel
    key: Key
    chunk_size: int
    workers: Workers = field(default_factory=Workers)
    dtype: torch.dtype = torch.float32
    count: Callable[[int | Tensor], None] | None = None
    loop_runner: LoopRunner | None = None
    group: ProcessGroup = field(default_factory=ProcessGroup)
    batching: Batching | None = None
    count_each: Callable[[Cohort, int | np.ndarray | Tensor], None] | None = None
    may_fail: bool = False
    results: list[tuple[Cohort, LocalResult]] = field(default_factory=list)

    @property
    def num_clients(self) -> int:
        return len(self.shards.sizes)

    @property
    def layers(self) -> tuple[int, ...]:
        return self.model.layers

    @property
    def tensors(self) -> tuple[ParameterTensor, ...]:
        return tensors_of(self.model)

    def map_clients(self, work: Callable[..., Any], cohort: Cohort, *rows: Tensor) -> Any:
        """`work(data, *rows)` chunk by chunk; see `Clients.map_clients`."""
        sizes = self.shards.sizes[list(cohort.clients)]
        # [M] those with most samples first, so that finished clients are the last rows
        positions = np.argsort(-sizes, kind="stable")
        num = len(positions)
        chunks = [positions[first : first + self.chunk_size] for first in range(0, num, self.chunk_size)]
        rows = tuple(_cast(tensor, torch.float32, self.dtype) for tensor in rows)
        in_order = len(chunks) == 1 and bool((positions[1:] > positions[:-1]).all())
        shares = self.group.split(chunks, lambda chunk: self._cost(sizes[chunk]))

        def work_on(chunk: np.ndarray) -> tuple[ClientChunk, np.ndarray, Tensor | None, Any]:
            if in_order:  # the cohort as it is
                data = self._data(cohort.ids, sizes)
                return data, chunk, None, _worked(work, data, rows)
            where = to_device(chunk, cohort.ids.device)
            data = self._data(cohort.ids.index_select(0, where), sizes[chunk])
            return data, chunk, where, _worked(work, data, [_take(tensor, where) for tensor in rows])

        result: Any = None
        gradients: list[tuple[np.ndarray, int | np.ndarray | Tensor]] = []
        done = self.workers.map(work_on, shares[self.group.rank])
        for data, chunk, where, part in self._all_or_error(done) if self.may_fail else done:
            if data.computed:
                gradients.append((chunk, data.gradients_of_each()))
            if where is None:
                result = part
                continue
            if result is None:
                result = map_tensors(lambda tensor: tensor.new_empty(num, *tensor.shape[1:]), part)
            map_tensors(lambda whole, tensor, at=where: whole.index_copy_(0, at, tensor), result, part)
        counts = self._gradients(gradients, num, cohort.ids)
        if self.count is not None:  # called from this thread alone: the threads of the chunks share the count
            total = counts * num if isinstance(counts, int) else counts.sum()
            self.count(total if isinstance(total, Tensor) else int(total))
        if self.count_each is not None:
            self.count_each(cohort, counts)
        result = self.group.gather(result, shares)
        if self.dtype != torch.float32:
            result = map_tensors(lambda tensor: _cast(tensor, self.dtype, torch.float32), result)
        parts = result if isinstance(result, tuple) else (result,)
        self.results.extend((cohort, part) for part in parts if isinstance(part, LocalResult))
        return result

    def moved(self, change: Tensor) -> "Executor":
        """As `Clients.moved`. A captured loop would read the tensors of its first round, so loops run step by step."""
        return replace(self, model=moved(self.model, change), loop_runner=None)

    def parallel_map(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterable[Any]:
        return self.workers.map(function, pieces)

    def _all_or_error(self, parts: Iterable[Any]) -> Iterable[Any]:
        """The same parts. If computing them fails in one process, every process raises (others: RuntimeError)."""
        if self.group.size == 1:
            return parts
        done: list[Any] = []
        error: Exception | None = None
        try:
            done.extend(parts)
        except Exception as own:
            error = own
        failed = self.group.sum_on_host(np.array([error is not None]))
        if error is not None:
            raise error
        if failed[0]:
            raise RuntimeError("the work of another process failed")
        return done

    def _gradients(
        self, parts: Sequence[tuple[np.ndarray, int | np.ndarray | Tensor]], num: int, ids: Tensor
    ) -> int | np.ndarray | Tensor:
        """Component gradients [M] of each client (an int: the same), from (positions, gradients) of own chunks."""
        if self.group.size == 1 and parts:
            same = parts[0][1]
            if len(parts) == 1 and isinstance(same, int) and len(parts[0][0]) == num:
                return same
        return self.group.sum_rows(_by_client(parts, num, ids))

    def _data(self, ids: Tensor, sizes: np.ndarray) -> ClientChunk:
        return ClientChunk(
            ids=ids,
            sizes=sizes,
            key=self.key,
            dataset=self.dataset,
            shards=self.shards,
            model=self.model,
            loop_runner=self.loop_runner,
            rows_at_once=self.chunk_size,
        )

    def _cost(self, sizes: np.ndarray) -> int:
        """Steps of clients with `sizes` samples; their samples, if `batching` is None."""
        return int((sizes if self.batching is None else num_steps(sizes, self.batching)).sum())


def _by_client(
    parts: Sequence[tuple[np.ndarray, int | np.ndarray | Tensor]], num: int, ids: Tensor
) -> np.ndarray | Tensor:
    """[M] counts from those of chunks with their positions; a tensor if any lies on a GPU, without synchronising."""
    if any(isinstance(own, Tensor) for _, own in parts):
        whole = ids.new_zeros(num)
        for positions, own in parts:
            on_host = np.full(len(positions), own) if isinstance(own, int) else own
            found = on_host if isinstance(on_host, Tensor) else to_device(on_host, ids.device)
            whole.index_copy_(0, to_device(positions, ids.device), found)
        return whole
    counts = np.zeros(num, np.int64)
    for positions, own in parts:
        counts[positions] = own
    return counts


def _cast(tensor: Tensor, old: torch.dtype, new: torch.dtype) -> Tensor:
    return tensor.to(new) if tensor.dtype == old != new else tensor


def _worked(work: Callable[..., Any], data: ClientChunk, rows: Sequence[Tensor]) -> Any:
    """`work(data, *rows)`. Raises ValueError: it writes into rows, which may be the round's own or copies."""
    written = _writes(rows)
    result = work(data, *rows)
    for number, (before, after) in enumerate(zip(written, _writes(rows))):
        if before != after:
            raise ValueError(
                f"what map_clients calls writes into rows {number + 1} of the {len(rows)} that it is given, with which "
                "the round goes on: make a new tensor, as in rows + change instead of rows.add_(change)"
            )
    return result


def _writes(rows: Sequence[Tensor]) -> list[int]:
    """How often each has been written into; 0 if it is of `torch.inference_mode()`, where torch does not count."""
    return [0 if tensor.is_inference() else tensor._version for tensor in rows]


def _take(rows: Tensor, where: Tensor) -> Tensor:
    """Rows at `where`; rows that are one vector repeated are not copied."""
    return rows[: where.shape[0]] if rows.stride(0) == 0 else rows.index_select(0, where)
