"""Runs the clients' work in chunks; the chunk size changes no draw, and no message but for rounding.

Shape legend: M clients of the cohort, N clients in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import LoopRunner
from fedcomp.core.cohort import Cohort
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.core.pytree import map_tensors
from fedcomp.dataset.contract import Dataset
from fedcomp.model.contract import AnyModel, tensors_of
from fedcomp.random.keys import Key
from fedcomp.runtime.workers import Workers
from fedcomp.simulation.chunks.client_data import ClientChunk, ClientShards


@dataclass(frozen=True)
class Executor:
    """Implements `Clients` for one round.

    Attributes:
        dataset, shards, model: who trains what on which samples.
        key: names the round's draws.
        chunk_size: clients trained at once; at least 1. workers: threads that share the chunks.
        dtype: what clients compute in. Their rows come and go in float32 all the same, as messages carry them.
        count: callback that receives the number of samples of each gradient.
        loop_runner: replays local loops as CUDA graphs, or None.
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

    @property
    def num_clients(self) -> int:
        """N."""
        return len(self.shards.sizes)

    @property
    def layers(self) -> tuple[int, ...]:
        """Sizes of the parameter tensors."""
        return self.model.layers

    @property
    def tensors(self) -> tuple[ParameterTensor, ...]:
        """What the parameter tensors are."""
        return tensors_of(self.model)

    def run(self, work: Callable[..., Any], cohort: Cohort, *rows: Tensor) -> Any:
        """`work(data, *rows)` chunk by chunk; see `Clients.run`."""
        if self.dtype == torch.float32:
            return self._run(work, cohort, *rows)
        result = self._run(work, cohort, *[_cast(tensor, torch.float32, self.dtype) for tensor in rows])
        return map_tensors(lambda tensor: _cast(tensor, self.dtype, torch.float32), result)

    def _run(self, work: Callable[..., Any], cohort: Cohort, *rows: Tensor) -> Any:
        sizes = self.shards.sizes[list(cohort.clients)]
        places = _by_work(sizes)
        in_order = bool((places[1:] > places[:-1]).all())
        if in_order and len(places) <= self.chunk_size:
            data = self._data(cohort.ids, sizes)
            result = work(data, *rows)
            self._count(data.computed)
            return result

        def work_on(chunk: np.ndarray) -> tuple[ClientChunk, Tensor, Any]:
            return self.work_on(work, cohort, sizes, rows, chunk)

        results: Any = None
        for data, where, part in self.workers.map(work_on, self._cut(places)):
            self._count(data.computed)
            if results is None:
                results = map_tensors(lambda tensor: tensor.new_empty(len(places), *tensor.shape[1:]), part)
            map_tensors(lambda whole, tensor, at=where: whole.index_copy_(0, at, tensor), results, part)
        return results

    def spread(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterable[Any]:
        """`map(function, pieces)` over the workers."""
        return self.workers.map(function, pieces)

    def chunks(self, sizes: np.ndarray) -> list[np.ndarray]:
        """Places in a cohort of clients with `sizes` [M] samples, chunk by chunk."""
        return self._cut(_by_work(sizes))

    def work_on(
        self, work: Callable[..., Any], cohort: Cohort, sizes: np.ndarray, rows: Sequence[Tensor], chunk: np.ndarray
    ) -> tuple[ClientChunk, Tensor, Any]:
        """One chunk's data, places on the device, and results."""
        where = torch.from_numpy(chunk).to(cohort.ids.device, non_blocking=True)
        data = self._data(cohort.ids.index_select(0, where), sizes[chunk])
        return data, where, work(data, *[_take(tensor, where) for tensor in rows])

    def _cut(self, places: np.ndarray) -> list[np.ndarray]:
        return [places[first : first + self.chunk_size] for first in range(0, len(places), self.chunk_size)]

    def _data(self, ids: Tensor, sizes: np.ndarray) -> ClientChunk:
        return ClientChunk(ids, sizes, self.key, self.dataset, self.shards, self.model, loop_runner=self.loop_runner)

    def _count(self, computed: Sequence[int | Tensor]) -> None:
        """Called from the main thread alone: the threads of the chunks share the count."""
        if self.count is not None and computed:
            self.count(total(computed))


def total(computed: Sequence[int | Tensor]) -> int | Tensor:
    """The sum of counts; a tensor if any lies on a GPU, without synchronising."""
    left = [num for num in computed if isinstance(num, Tensor)]
    known = sum(num for num in computed if not isinstance(num, Tensor))
    return known + torch.stack(left).sum() if left else known


def _cast(tensor: Tensor, old: torch.dtype, new: torch.dtype) -> Tensor:
    return tensor.to(new) if tensor.dtype == old else tensor


def _by_work(sizes: np.ndarray) -> np.ndarray:
    """[M] places of the clients, those with most work first, so that those done drop off the end."""
    return np.argsort(-sizes, kind="stable")


def _take(rows: Tensor, where: Tensor) -> Tensor:
    """Rows at `where`; rows that are one vector repeated are not copied."""
    return rows[: where.shape[0]] if rows.stride(0) == 0 else rows.index_select(0, where)
