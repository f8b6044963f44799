"""The contract of a dataset: raw samples, and how they become model inputs.

Shape legend: n samples, B batch, C channels, H height, W width, F features, L length of a sequence of tokens, T the
shape of one sample's targets.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

Task = Literal["classification", "regression", "next_token", "segmentation"]
"""Cross-entropy with accuracy; squared error; cross-entropy with accuracy and perplexity; cross-entropy of pixels with
accuracy and mean IoU."""
Unlabelled = Literal["ignored", "absent"]
"""What training makes of a pixel that has no class."""
IGNORED = 255
"""Marks a pixel that has no class: it does not count in the metrics, nor, with `unlabelled="ignored"`, in the loss."""
NO_TARGET = -100
"""Marks a token that is no target, such as one of a prompt: it counts neither in the loss nor in the metrics."""


@dataclass(frozen=True)
class Samples:
    """Samples in memory, resident on one device.

    Attributes:
        x: [n, F] or, for images, [n, H, W, C]; uint8 or float32, not yet normalised. Tokens: [n, L] integers.
        y: [n, *T] int64 classes, T = () for one class a sample; or, for regression, [n, outputs] float32; or, for
            segmentation, [n, H, W] uint8 classes of pixels, with `IGNORED`; or, for next_token, with `NO_TARGET`.
        owner: [n] int64 number of the writer, speaker or user that each sample comes from, 0 or more, on the CPU; None:
            not known.
    """

    x: Tensor
    y: Tensor
    owner: Tensor | None = None

    def __len__(self) -> int:
        return self.x.shape[0]


@dataclass(frozen=True)
class Dataset:
    """Training and test samples with what a model must know about them.

    Attributes:
        name: as in `dataset=<name>`.
        train, test: raw samples.
        task: decides the loss and the metrics, see `model/loss.py`.
        num_outputs: classes, or regression targets.
        mean, std: normalisation, one entry a channel or feature (or one for all), in raw units.
        crop_padding: pixels of zero padding for a random crop while training; 0 for none.
        flip: mirror images left to right with probability 1/2 while training.
        rescale: least and largest factor by which images are resized at random while training, before a random crop of
            their own size; None: not at all.
        class_names: one a class, for pictures; empty for regression.
        background: for segmentation: class 0 is what lies behind the objects.
        unlabelled: for segmentation: what training makes of pixels without a class: they are ignored, or of some class
            that is absent from the client's batch.
        vocab_size: number of tokens where x holds tokens, 0 to vocab_size - 1; None: x holds features or pixels.
        padding_token: for texts with a class: the token that fills short ones up behind their end; None: none does.
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
    rescale: tuple[float, float] | None = None
    class_names: tuple[str, ...] = ()
    vocab_size: int | None = None
    background: bool = False
    unlabelled: Unlabelled = "ignored"
    padding_token: int | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """What a model sees of one sample: (F,), (C, H, W) or, of tokens, (L,)."""
        shape = tuple(self.train.x.shape[1:])
        return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape

    @property
    def target_shape(self) -> tuple[int, ...]:
        """T: () for one class a sample, and for regression, whose targets are the model's outputs."""
        return () if self.task == "regression" else tuple(self.train.y.shape[1:])

    @property
    def input_dtype(self) -> torch.dtype:
        """float32, or int64 for tokens."""
        return torch.float32 if self.vocab_size is None else torch.int64

    @property
    def labels(self) -> Tensor | None:
        """[n] int64 class of each training sample, on the CPU, to deal samples by; None where it has no single one.

        Of a picture that of most pixels, the lowest of equals; the background only where there is nothing else.
        """
        if self.task == "segmentation":
            return _main_classes(self.train.y.cpu(), self.num_outputs, self.background)
        return self.train.y.cpu() if self.task == "classification" and self.train.y.dim() == 1 else None

    @cached_property
    def some_tokens(self) -> bool:
        """Whether some targets are `NO_TARGET`: a sample then counts by its number of targets."""
        return self.task == "next_token" and any(bool((y == NO_TARGET).any()) for y in (self.train.y, self.test.y))

    @property
    def judged_by(self) -> str:
        """What `model/loss.py` calls loss and metrics: the task, or "some_tokens"."""
        return "some_tokens" if self.some_tokens else self.task

    @property
    def augments(self) -> bool:
        """Whether training inputs are changed at random."""
        return self.crop_padding > 0 or self.flip or self.rescale is not None

    def to(self, device: torch.device | str) -> "Dataset":
        """The same dataset with every tensor on `device`."""
        train = replace(self.train, x=self.train.x.to(device), y=self.train.y.to(device))
        test = replace(self.test, x=self.test.x.to(device), y=self.test.y.to(device))
        moved = replace(self, train=train, test=test, mean=self.mean.to(device), std=self.std.to(device))
        # Computed here, before any side stream or CUDA graph could be the first to need them.
        _ = moved.offset_and_scale, moved._of_lines, moved.classes_of_pixels, moved.some_tokens
        return moved

    @cached_property
    def offset_and_scale(self) -> tuple[Tensor, Tensor]:
        """(-mean / std, 1 / std): inputs are offset + scale * raw, a single operation."""
        return -self.mean / self.std, 1.0 / self.std

    @cached_property
    def _of_lines(self) -> tuple[Tensor, Tensor]:
        """`offset_and_scale`; of images for a line of pixels, [W C]: loops over the few channels of one are slow."""
        if self.train.x.dim() < 4:
            return self.offset_and_scale
        width, channels = self.train.x.shape[2:]
        offset, scale = (part.expand(channels).repeat(width) for part in self.offset_and_scale)
        return offset, scale

    @cached_property
    def classes_of_pixels(self) -> dict[int, str]:
        """Number -> name of the classes in the test pictures; {} unless for segmentation with names."""
        if self.task != "segmentation" or not self.class_names:
            return {}
        found = torch.bincount(self.test.y.flatten(), minlength=IGNORED + 1)[: self.num_outputs].tolist()
        return {label: name for label, name in enumerate(self.class_names) if found[label]}

    def normalise(self, raw: Tensor) -> Tensor:
        """Model inputs: (raw - mean) / std in float32, tokens as int64.

        Images come out as [..., C, H, W], channels last in memory.
        """
        if self.vocab_size is not None:
            return raw.to(torch.int64)
        offset, scale = self._of_lines
        if self.train.x.dim() < 4:
            return torch.addcmul(offset, raw.to(torch.float32), scale)
        return torch.addcmul(offset, raw.flatten(-2).to(torch.float32), scale).view(raw.shape).movedim(-1, -3)

    def inputs(self, samples: Samples, batch: int = 1024) -> Iterator[Tensor]:
        """Model inputs [B, ...] of all `samples` in their order, a batch at a time, without augmentation."""
        for first in range(0, len(samples), batch):
            yield self.normalise(samples.x[first : first + batch])


def _main_classes(y: Tensor, num_classes: int, background: bool) -> Tensor:
    """[n] int64 class of most pixels of each picture [n, H, W]; see `Dataset.labels`."""
    found = torch.zeros(len(y), dtype=torch.int64)
    for number, picture in enumerate(y):
        areas = torch.bincount(picture.flatten(), minlength=IGNORED + 1)[:num_classes]
        if background and bool(areas[1:].any()):
            areas[0] = 0
        found[number] = areas.argmax()
    return found
