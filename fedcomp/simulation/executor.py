"""Runs the clients' work in chunks; the chunk size changes no draw and no message.

Shape legend: M clients of the cohort, N clients in all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcomp.cohort import Cohort
from fedcomp.dataset.contract import Dataset
from fedcomp.keys import Key
from fedcomp.model.contract import Learnt, tensors_of
from fedcomp.simulation.local import ChunkData, Shards
from fedcomp.simulation.recorded import Recorder
from fedcomp.simulation.workers import Workers
from fedcomp.tensors import ParameterTensor


@dataclass(frozen=True)
class Executor:
    """Implements `Clients` for one round.

    Attributes:
        dataset, shards, model: who trains what on which samples.
        key: names the round's draws.
        chunk_size: clients trained at once; at least 1. workers: threads that share the chunks.
        recorder: repeats recorded local loops on a GPU, or None.
    """

    dataset: Dataset
    shards: Shards
    model: Learnt
    key: Key
    chunk_size: int
    workers: Workers = field(default_factory=Workers)
    recorder: Recorder | None = None

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
        sizes = self.shards.sizes[list(cohort.clients)]
        places = np.argsort(-sizes, kind="stable")  # clients with most work first, so that those done drop off the end
        in_order = bool((places[1:] > places[:-1]).all())
        if in_order and len(places) <= self.chunk_size:
            return work(self._data(cohort.ids, sizes), *rows)
        chunks = [places[first : first + self.chunk_size] for first in range(0, len(places), self.chunk_size)]

        def work_on(chosen: np.ndarray) -> tuple[Tensor, Any]:
            where = torch.from_numpy(chosen).to(cohort.ids.device, non_blocking=True)
            data = self._data(cohort.ids.index_select(0, where), sizes[chosen])
            return where, work(data, *[_take(tensor, where) for tensor in rows])

        results: Any = None
        for where, part in self.workers.map(work_on, chunks):
            if results is None:
                results = _map(lambda tensor: tensor.new_empty(len(places), *tensor.shape[1:]), part)
            _map(lambda whole, tensor, at=where: whole.index_copy_(0, at, tensor), results, part)
        return results

    def spread(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterable[Any]:
        """`map(function, pieces)` over the workers."""
        return self.workers.map(function, pieces)

    def _data(self, ids: Tensor, sizes: np.ndarray) -> ChunkData:
        return ChunkData(ids, sizes, self.key, self.dataset, self.shards, self.model, self.recorder)


def _take(rows: Tensor, where: Tensor) -> Tensor:
    """Rows at `where`; rows that are one vector repeated are not copied."""
    return rows[: where.shape[0]] if rows.stride(0) == 0 else rows.index_select(0, where)


def _map(function: Callable[..., Tensor], *trees: Any) -> Any:
    """Apply `function` to the tensors of equally built dataclasses or tuples."""
    head = trees[0]
    if isinstance(head, Tensor):
        return function(*trees)
    if isinstance(head, tuple):
        return tuple(_map(function, *parts) for parts in zip(*trees, strict=True))
    names = [field.name for field in dataclasses.fields(head)]
    return dataclasses.replace(
        head, **{name: _map(function, *[getattr(tree, name) for tree in trees]) for name in names}
    )
