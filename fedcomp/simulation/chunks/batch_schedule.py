"""Which samples every client of a chunk takes in every step, drawn from keys for the whole round.

Shape legend: M clients of a chunk, A of them still at work, S steps, B batch, E passes, n samples of a client.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcomp.client.contract import Batching
from fedcomp.core.step_counts import StepCounts
from fedcomp.core.to_device import to_device
from fedcomp.random.keys import Key

OUT_OF_RANGE = 1 << 32
"""Larger than any random word, which has 32 bits."""
MOST_PLACES = 1 << 30
"""Most samples of a client for which a word and a place fit into 62 bits."""


@dataclass(frozen=True)
class BatchSchedule:
    """The steps of a round.

    Attributes:
        position: [S, M, B] int64 places in a client's own list of samples; 0 where no sample is taken.
        counts: samples really taken.
    """

    position: Tensor
    counts: StepCounts


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
    plan = _plan(sizes.tobytes(), batching)
    batch, num_passes, counts, num = plan.batch, plan.num_passes, plan.counts, len(plan.counts.of_steps)
    if batching.replacement:
        drawn = _with_replacement(ids, sizes, num * batch, key)
        return BatchSchedule(drawn.view(len(sizes), num, batch).transpose(0, 1), counts)
    order = torch.stack([_shuffled(ids, sizes, key.fold_in("pass", index)) for index in range(num_passes)])  # [E, M, n]
    if plan.first_place is None:
        whole = order.view(num_passes, len(sizes), -1, batch).transpose(1, 2).flatten(0, 1)
        return BatchSchedule(whole[:num], counts)
    flat = order.transpose(0, 1).flatten(1)  # [M, E n]
    start = to_device(plan.first_place, ids.device)
    index = (start[:, :, None] + torch.arange(batch, device=ids.device)).clamp_(max=flat.shape[1] - 1)  # [S, M, B]
    position = flat.gather(1, index.transpose(0, 1).flatten(1)).view(len(sizes), num, batch)
    held = to_device(sizes, ids.device)
    return BatchSchedule(position.masked_fill_(position >= held[:, None, None], 0).transpose(0, 1), counts)


@dataclass(frozen=True)
class _Plan:
    """The part of a schedule that is the same in all rounds.

    Attributes:
        batch: B. num_passes: E. counts: of the steps.
        first_place: [S, M] place of a step's first sample in the client's passes, one after another [E n]; None: all
            passes are cut evenly, or samples are drawn with replacement.
    """

    batch: int
    num_passes: int
    counts: StepCounts
    first_place: np.ndarray | None


@functools.lru_cache(maxsize=8)
def _plan(sizes_bytes: bytes, batching: Batching) -> _Plan:
    """Of clients with as many samples as `sizes_bytes` says, int64."""
    sizes = np.frombuffer(sizes_bytes, np.int64)
    steps = num_steps(sizes, batching)
    step = np.arange(int(steps.max()))[:, None]
    if batching.replacement:
        return _Plan(batching.batch_size, 0, StepCounts(np.where(step < steps, batching.batch_size, 0)), None)
    batch = int(min(batching.batch_size, sizes.max()))
    per_pass = -(-sizes // batch)
    num_passes = int((-(-steps // per_pass)).max())
    first = (step % per_pass) * batch  # place in its pass
    counts = StepCounts(np.where(step < steps, np.minimum(batch, sizes - first), 0))
    if (sizes == sizes[0]).all() and int(sizes[0]) % batch == 0:
        return _Plan(batch, num_passes, counts, None)
    longest = int(sizes.max())
    return _Plan(batch, num_passes, counts, np.minimum((step // per_pass) * longest + first, num_passes * longest - 1))


def in_order(ids: Tensor, sizes: np.ndarray, batch_size: int) -> BatchSchedule:
    """One pass over every client's samples in their own order, `batch_size` at a time, the last batch as is left."""
    batch = int(min(batch_size, sizes.max()))
    num = -(-int(sizes.max()) // batch)
    counts = np.clip(sizes - batch * np.arange(num)[:, None], 0, batch)
    position = torch.arange(num * batch, device=ids.device).view(num, 1, batch).expand(num, len(sizes), batch)
    held = to_device(sizes, ids.device)
    return BatchSchedule(position.masked_fill(position >= held[:, None], 0), StepCounts(counts))


def _shuffled(ids: Tensor, sizes: np.ndarray, key: Key) -> Tensor:
    """[M, n] the places 0 to n - 1 in random order, those at which the client has a sample first."""
    longest = int(sizes.max())
    words = key.bits(ids, longest)
    if (sizes != longest).any():
        held = to_device(sizes, ids.device)
        words = words.masked_fill(torch.arange(longest, device=ids.device) >= held[:, None], OUT_OF_RANGE)
    if words.device.type != "cpu" or longest > MOST_PLACES:
        return words.argsort(dim=1, stable=True)
    # Sorting (word, place) packed in one integer with NumPy is up to ten times as fast as torch's argsort.
    carrying = words.numpy()
    carrying <<= 30
    carrying |= np.arange(longest)
    carrying.sort(axis=1)
    carrying &= MOST_PLACES - 1
    return words


def _with_replacement(ids: Tensor, sizes: np.ndarray, num: int, key: Key) -> Tensor:
    """[M, num] places of independent samples."""
    words = key.fold_in("replacement").bits(ids, num)
    return (words * to_device(sizes, ids.device)[:, None]) >> 32
