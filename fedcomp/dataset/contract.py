"""The contract of a dataset: raw samples, and how they become model inputs.

Shape legend: n samples, B batch, C channels, H height, W width, F features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Samples:
    """Samples in memory, resident on one device.

    Attributes:
        x: [n, F] or, for images, [n, H, W, C]; uint8 or float32, not yet normalised.
        y: [n] int64 classes, or [n, outputs] float32 targets.
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return self.x.shape[0]


@dataclass(frozen=True)
class Dataset:
    """Training and test samples with what a model must know about them.

    Attributes:
        name: as in `dataset=<name>`.
        train, test: raw samples.
        task: decides the loss (cross-entropy or squared error) and the metrics.
        num_outputs: classes, or regression targets.
        mean, std: normalisation, one entry a channel or feature (or one for all), in raw units.
        crop_padding: pixels of zero padding for a random crop while training; 0 for none.
        flip: mirror images left to right with probability 1/2 while training.
        class_names: one a class, for pictures; empty for regression.
    """

    name: str
    train: Samples
    test: Samples
    task: Task
    num_outputs: int
    mean: Tensor = field(default_factory=lambda: torch.zeros(1))
    std: Tensor = field(default_factory=lambda: torch.ones(1))
    crop_padding: int = 0
    flip: bool = False
    class_names: tuple[str, ...] = ()

    @property
    def input_shape(self) -> tuple[int, ...]:
        """What a model sees of one sample: (F,) or (C, H, W)."""
        shape = tuple(self.train.x.shape[1:])
        return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape

    @property
    def augments(self) -> bool:
        """Whether training inputs are changed at random."""
        return self.crop_padding > 0 or self.flip

    def to(self, device: torch.device | str) -> Dataset:
        """The same dataset with every tensor on `device`."""
        train = Samples(self.train.x.to(device), self.train.y.to(device))
        test = Samples(self.test.x.to(device), self.test.y.to(device))
        return replace(self, train=train, test=test, mean=self.mean.to(device), std=self.std.to(device))

    def normalise(self, raw: Tensor) -> Tensor:
        """Model inputs: (raw - mean) / std in float32; images come out as [..., C, H, W] (channels last in memory)."""
        x = torch.addcmul(-self.mean / self.std, raw.to(torch.float32), 1.0 / self.std)
        return x.movedim(-1, -3) if self.train.x.dim() == 4 else x

    def inputs(self, samples: Samples, batch: int = 1024) -> Iterator[Tensor]:
        """Model inputs [B, ...] of all `samples` in their order, a batch at a time, without augmentation."""
        for first in range(0, len(samples), batch):
            yield self.normalise(samples.x[first : first + batch])
