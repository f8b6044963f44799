"""A chunk of clients with their data, as a method's local work receives it.

Shape legend: M clients of a chunk, A of them still at work, N clients in all, S steps, B batch, O outputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import Batching, LoopRunner
from fedcomp.client.hook import Draws
from fedcomp.core.parameter_layout import ParameterTensor
from fedcomp.core.step_counts import StepCounts
from fedcomp.core.to_device import to_device
from fedcomp.dataset.contract import Dataset
from fedcomp.dataset.images.augment import augment, num_draws
from fedcomp.model.contract import AnyModel, Batch, Gradient, Model, StepDraws, tensors_of
from fedcomp.model.loss import mean_loss
from fedcomp.random.keys import Key
from fedcomp.simulation.chunks.batch_schedule import BatchSchedule, batch_schedule, in_order, num_steps

GATHER_BYTES = 1 << 20

RowCounts = tuple[int, int] | np.ndarray | Tensor


@dataclass(frozen=True)
class ClientShards:
    """Who holds which training samples.

    Attributes:
        order: [n] int64 sample numbers, client after client.
        start: [N] int64 where each client's own begin in `order`.
        sizes: [N] samples of each client, known to the host.
    """

    order: Tensor
    start: Tensor
    sizes: np.ndarray

    @classmethod
    def of(cls, parts: list[Tensor], device: torch.device) -> "ClientShards":
        """From one tensor of sample numbers a client."""
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        start = torch.from_numpy(np.cumsum(sizes) - sizes)
        return cls(torch.cat(parts).to(device), start.to(device), sizes)


@dataclass(frozen=True)
class ClientChunk:
    """Implements `LocalData` for the clients `ids`, sorted by falling number of samples.

    Attributes:
        ids: [M] int64 client numbers on the device. sizes: [M] their samples, known to the host.
        key: names the draws of this round's batches.
        loop_runner: replays loops as CUDA graphs; None: every loop runs step by step.
        rows_at_once: models whose losses are computed at once.
        computed: of every gradient that was computed on this chunk the samples of each client, [A] of the first A rows,
            or (A, number) where all have as many.
        uneven: (weight, samples of each client [A]) of the last batch in which clients have unequal numbers of samples.
    """

    ids: Tensor
    sizes: np.ndarray
    key: Key
    dataset: Dataset
    shards: ClientShards
    model: AnyModel
    loop_runner: LoopRunner | None = None
    rows_at_once: int = 1
    computed: list[RowCounts] = field(default_factory=list)
    uneven: list[tuple[Tensor, np.ndarray]] = field(default_factory=list)

    @property
    def tensors(self) -> tuple[ParameterTensor, ...]:
        return tensors_of(self.model)

    @property
    def num_samples(self) -> Tensor:
        return to_device(self.sizes, self.ids.device)

    def num_steps(self, batching: Batching) -> Tensor:
        return to_device(num_steps(self.sizes, batching), self.ids.device)

    def gradient(self, theta: Tensor, batch: Batch, step: int | Tensor) -> Gradient:
        """The plain gradient of the batch loss."""
        network = cast(Model, self.model)  # algorithms that take gradients are only run with networks
        self._count(batch)
        return network.gradient(theta, batch, self._draws(network, batch, step))

    def outputs(self, theta: Tensor, batch: Batch, step: int | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `LocalData.outputs`."""
        network = cast(Model, self.model)
        if step is None:
            return network.client_outputs(theta, batch, training=False)
        self._count(batch)
        return network.client_outputs(theta, batch, True, self._draws(network, batch, step))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """As `LocalData.loss`."""
        return mean_loss(cast(Model, self.model).loss, outputs, batch.y, batch.weight)

    def _draws(self, network: Model, batch: Batch, step: int | Tensor) -> StepDraws | None:
        """What the network draws from in this step; None: it draws nothing."""
        if not network.draws_in_training:
            return None
        assert isinstance(step, int), "a captured loop would repeat one mask"
        return StepDraws(self.key.fold_in("dropout", step), self.ids[: batch.num_rows])

    def losses(self, theta: Tensor, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """As `LocalData.losses`: models of one client side by side in as many calls as `rows_at_once` asks for."""
        network, rows, found = cast(Model, self.model), theta.shape[0], []
        at_once = theta.shape[1] if network.goes_through_models(theta) else self.rows_at_once // max(rows, 1)
        for models in theta.split(max(1, at_once), 1):
            num = models.shape[1]
            stats, x, y, ids = (_repeated(part, num) for part in (batch.stats, batch.x, batch.y, self.ids[:rows]))
            weight = None if batch.weight is None else _repeated(batch.weight, num)
            draws = StepDraws(self.key.fold_in("dropout", step), ids) if network.draws_in_training else None
            loss, after = network.batch_loss(models.flatten(0, 1), Batch(x, y, weight, stats), draws)
            found.append((loss.unflatten(0, (rows, num)), after.unflatten(0, (rows, num))))
        return torch.cat([loss for loss, _ in found], 1), torch.cat([stats for _, stats in found], 1)

    def _count(self, batch: Batch) -> None:
        """Count the gradients of one step. For batches made by `batches` the device is not read."""
        if batch.weight is None:
            rows, size = batch.y.shape[:2]
            self.computed.append((rows, size))
            return
        known = [counts for weight, counts in self.uneven if weight is batch.weight]
        self.computed.append(known[0] if known else batch.weight.sum(1))

    def count(self, counts: StepCounts) -> None:
        """Count the gradients of a whole loop."""
        self.computed.append(counts.of_clients)

    def gradients_of_each(self) -> int | np.ndarray | Tensor:
        """Component gradients of each client: int64 [M], an int if all are equal. Does not synchronise."""
        counts: list[np.ndarray | Tensor] = []
        even: dict[int, int] = {}  # of the first so many rows
        for rows in self.computed:
            if isinstance(rows, tuple):
                even[rows[0]] = even.get(rows[0], 0) + rows[1]
            else:
                counts.append(rows)
        num = len(self.sizes)
        for_all = even.pop(num, 0)
        if not even and not counts:
            return for_all
        on_gpu = any(isinstance(one, Tensor) and one.device.type != "cpu" for one in counts)
        total: Any = self.ids.new_full((num,), for_all) if on_gpu else np.full(num, for_all, np.int64)
        for first, each in even.items():
            total[:first] += each
        for one in counts:
            if isinstance(one, Tensor):
                total[: len(one)] += one.to(torch.int64) if on_gpu else one.numpy().astype(np.int64)
            else:
                total[: len(one)] += to_device(one, self.ids.device) if on_gpu else one
        return cast("np.ndarray | Tensor", total)

    def batches(self, batching: Batching) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Steps as (x [A, B, ...], y [A, B], weight [A, B] or None); clients that are done drop out at the end."""
        return self._steps(self.schedule(batching), self.dataset.augments)

    def schedule(self, batching: Batching) -> BatchSchedule:
        """The steps that `batches` makes."""
        return batch_schedule(self.ids, self.sizes, batching, self.key.fold_in("batch"))

    def samples(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        return self._steps(in_order(self.ids, self.sizes, batch_size), augments=False)

    def take(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(x [M, B, ...], y [M, B]) at `positions` [M, B] of each client's own list."""
        return gather(self.dataset, self.sample_indices(positions))

    def augmentation(self, step: int) -> Key:
        """Names the draws that change a step's samples at random."""
        return self.key.fold_in("augment", step)

    def sample_indices(self, positions: Tensor) -> Tensor:
        """Indices in the dataset of positions [..., M, B] in the clients' own lists."""
        return self.shards.order[positions + self.shards.start.index_select(0, self.ids)[:, None]]

    def _steps(self, steps: BatchSchedule, augments: bool) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        index = self.sample_indices(steps.position)  # [S, M, B]
        num_steps, num_rows, batch = index.shape
        sample_bytes = self.dataset.train.x[0].numel() * 4
        window = max(1, GATHER_BYTES // (num_rows * batch * sample_bytes))
        shapes = steps.counts.shapes
        for first in range(0, num_steps, window):
            chosen = index[first : first + window]
            keys = [self.augmentation(first + offset) for offset in range(len(chosen))] if augments else []
            xs, ys = gather(self.dataset, chosen, self.ids, keys)
            for offset, (x, y) in enumerate(zip(xs.unbind(), ys.unbind(), strict=True)):
                active, longest, ragged = shapes[first + offset]
                if (active, longest) != (num_rows, batch):
                    x, y = x[:active, :longest], y[:active, :longest]
                if not ragged:
                    yield x, y, None
                    continue
                counts = steps.counts.of_steps[first + offset, :active]
                weight = _sample_mask(counts, x)
                self.uneven[:] = [(weight, counts)]
                yield x, y, weight


def gather(
    dataset: Dataset, index: Tensor, ids: Tensor | None = None, augmentation: Sequence[Draws] = ()
) -> tuple[Tensor, Tensor]:
    """Inputs [S, M, B, ...] and targets [S, M, B] or [S, M, B, O] of the training samples `index` [S, M, B].

    Args:
        ids: [M] client numbers. augmentation: draws of each step that change its samples at random; none: as they are.
    """
    flat = index.reshape(-1)
    train = dataset.train
    raw = train.x.index_select(0, flat).view(*index.shape, *train.x.shape[1:])
    ys = train.y.index_select(0, flat).view(*index.shape, *train.y.shape[1:])
    if augmentation and ids is not None:
        # Step by step, so that a sample's crop depends on its client and step and not on how many steps are gathered.
        rows, batch = index.shape[1:]
        num = num_draws(dataset)
        draws = [one.uniform(ids, num * batch).view(rows, batch, num) for one in augmentation]
        raw, ys = augment(dataset, raw, ys, torch.stack(draws))
    return dataset.normalise(raw), ys


def _repeated(rows: Tensor, num: int) -> Tensor:
    """Each row `num` times; one row as a view."""
    return rows.expand(num, *rows.shape[1:]) if len(rows) == 1 else rows.repeat_interleave(num, 0)


def _sample_mask(counts: np.ndarray, x: Tensor) -> Tensor:
    """[A, B] of 0 and 1: the places of x [A, B, ...] that hold a sample, given the samples of each client [A]."""
    held = to_device(counts, x.device)
    return (torch.arange(x.shape[1], device=x.device) < held[:, None]).to(torch.float32)
