"""Which samples every client of a chunk takes in every step, drawn from keys for the whole round.

Shape legend: M clients of a chunk, A of them still at work, S steps, B batch, E passes, n samples of a client.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import Batching
from fedcomp.core.to_device import to_device
from fedcomp.random.keys import Key

OUT_OF_RANGE = 1 << 32
"""Above all words, which have 32 bits."""
MOST_PLACES = 1 << 30


@dataclass(frozen=True)
class BatchSchedule:
    """The steps of a round.

    Attributes:
        position: [S, M, B] int64 places in a client's own list of samples; 0 where no sample is taken.
        counts: [S, M] samples really taken (0 after a client's last step), known to the host.
    """

    position: Tensor
    counts: np.ndarray

    def shapes(self) -> list[tuple[int, int, bool]]:
        """For each step: clients still at work, samples of the largest batch, whether batches differ in size."""
        active, longest = (self.counts > 0).sum(1), self.counts.max(1)
        ragged = ((self.counts > 0) & (self.counts < longest[:, None])).any(1)
        return list(zip(active.tolist(), longest.tolist(), ragged.tolist(), strict=True))


def num_steps(sizes: np.ndarray, batching: Batching) -> np.ndarray:
    """[M] steps that clients with `sizes` samples make."""
    if batching.steps is not None:
        return np.full_like(sizes, batching.steps)
    return batching.epochs * -(-sizes // batching.batch_size)


def batch_schedule(ids: Tensor, sizes: np.ndarray, batching: Batching, key: Key) -> BatchSchedule:
    """Plan a round for clients `ids` [M] (on the run's device) that hold `sizes` [M] samples (known to the host).

    A client's schedule depends only on its number and size: epoch e goes through its samples in the order of keyed
    random words, in batches of B; the last one may be smaller.
    """
    steps = num_steps(sizes, batching)
    if batching.replacement:
        return _with_replacement(ids, sizes, steps, batching.batch_size, key)
    batch = int(min(batching.batch_size, sizes.max()))
    per_pass = -(-sizes // batch)
    num_passes = int((-(-steps // per_pass)).max())
    order = torch.stack([_shuffled(ids, sizes, key.fold_in("pass", index)) for index in range(num_passes)])  # [E, M, n]

    step = np.arange(int(steps.max()))[:, None]
    first = (step % per_pass) * batch  # [S, M] place of the step's first sample in its pass
    counts = np.where(step < steps, np.minimum(batch, sizes - first), 0)
    if (sizes == sizes[0]).all() and int(sizes[0]) % batch == 0:
        whole = order.view(num_passes, len(sizes), -1, batch).transpose(1, 2).flatten(0, 1)
        return BatchSchedule(whole[: len(step)], counts)
    place = np.minimum((step // per_pass) * order.shape[2] + first, num_passes * order.shape[2] - 1)
    flat = order.transpose(0, 1).flatten(1)  # [M, E n]
    start = to_device(place, ids.device)
    index = (start[:, :, None] + torch.arange(batch, device=ids.device)).clamp_(max=flat.shape[1] - 1)  # [S, M, B]
    position = flat.gather(1, index.transpose(0, 1).flatten(1)).view(len(sizes), len(step), batch)
    held = to_device(sizes, ids.device)
    return BatchSchedule(position.masked_fill_(position >= held[:, None, None], 0).transpose(0, 1), counts)


def in_order(ids: Tensor, sizes: np.ndarray, batch_size: int) -> BatchSchedule:
    """One pass over every client's samples in their own order, `batch_size` at a time, the last batch as is left."""
    batch = int(min(batch_size, sizes.max()))
    num = -(-int(sizes.max()) // batch)
    counts = np.clip(sizes - batch * np.arange(num)[:, None], 0, batch)
    position = torch.arange(num * batch, device=ids.device).view(num, 1, batch).expand(num, len(sizes), batch)
    held = to_device(sizes, ids.device)
    return BatchSchedule(position.masked_fill(position >= held[:, None], 0), counts)


def _shuffled(ids: Tensor, sizes: np.ndarray, key: Key) -> Tensor:
    """[M, n] each client's own places in random order, its places first."""
    longest = int(sizes.max())
    words = key.bits(ids, longest)
    if (sizes != longest).any():
        held = to_device(sizes, ids.device)
        words = words.masked_fill(torch.arange(longest, device=ids.device) >= held[:, None], OUT_OF_RANGE)
    if words.device.type != "cpu" or longest > MOST_PLACES:
        return words.argsort(dim=1, stable=True)
    # Words that carry their places are sorted by NumPy, up to ten times as fast as torch finds the same order.
    carrying = ((words << 30) | torch.arange(longest, device=words.device)).numpy()
    carrying.sort(axis=1)
    return torch.from_numpy(carrying) & (MOST_PLACES - 1)


def _with_replacement(ids: Tensor, sizes: np.ndarray, steps: np.ndarray, batch: int, key: Key) -> BatchSchedule:
    total = int(steps.max())
    held = to_device(sizes, ids.device)
    words = key.fold_in("replacement").bits(ids, total * batch)
    position = ((words * held[:, None]) >> 32).view(len(sizes), total, batch).transpose(0, 1)
    return BatchSchedule(position, np.where(np.arange(total)[:, None] < steps, batch, 0))
