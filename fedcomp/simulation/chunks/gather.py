"""Samples of every client's batch, taken from the one tensor that holds them all.

Shape legend: S steps, M clients, B batch, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcomp.client.hook import Draws
from fedcomp.dataset.augment import NUM_DRAWS, crop_and_flip
from fedcomp.dataset.contract import Dataset


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
    if augmentation and ids is not None:
        # Step by step, so that a sample's crop depends on its client and step and not on how many steps are gathered.
        rows, batch = index.shape[1:]
        draws = [one.uniform(ids, NUM_DRAWS * batch).view(rows, batch, NUM_DRAWS) for one in augmentation]
        raw = crop_and_flip(raw, torch.stack(draws), dataset.crop_padding, dataset.flip)
    ys = train.y.index_select(0, flat).view(*index.shape, *train.y.shape[1:])
    return dataset.normalise(raw), ys
