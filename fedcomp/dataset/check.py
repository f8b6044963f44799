"""What every dataset must satisfy before the first round, including a user's own."""

import math
from typing import get_args

import torch
from torch import Tensor

from fedcomp.core.validate import check_folder_name, check_one_line, is_whole
from fedcomp.dataset.contract import IGNORED, NO_TARGET, Dataset, Samples, Task, Unlabelled


def check(dataset: Dataset) -> None:
    """Refuse a dataset that a run cannot use or that would spoil its results silently.

    Raises:
        ValueError: no samples, shapes that do not fit, labels outside [0, num_outputs) or of one class only, tokens
            outside [0, vocab_size) or that are their own targets, owners that do not fit the samples, a value that is
            not finite, a normalisation that divides by zero, augmentation of what is no image, a name that
            cannot name a folder. One line, naming the first culprit.
    """
    _check_types(dataset)
    check_folder_name("dataset.name", dataset.name)  # of which `fedcomp-evaluate` makes one
    for name in dataset.class_names:
        check_one_line("class", name)
    where = f"dataset={dataset.name}"
    if dataset.task not in get_args(Task):
        raise ValueError(f"{where}: task is {dataset.task!r}, but must be one of {', '.join(get_args(Task))}")
    if dataset.unlabelled not in get_args(Unlabelled):
        raise ValueError(
            f"{where}: unlabelled is {dataset.unlabelled!r}, but must be one of {', '.join(get_args(Unlabelled))}"
        )
    if dataset.unlabelled != "ignored" and dataset.task != "segmentation":
        raise ValueError(
            f"{where}: unlabelled={dataset.unlabelled} is for segmentation, and its task is {dataset.task}"
        )
    _check_samples(f"{where}: train", dataset.train, dataset)
    if dataset.test is not dataset.train:
        _check_samples(f"{where}: test", dataset.test, dataset)
    train, test = dataset.train.x, dataset.test.x
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise ValueError(
            f"{where}: a training sample is {train.dtype} {tuple(train.shape[1:])}, but a test sample is "
            f"{test.dtype} {tuple(test.shape[1:])}; both must be alike"
        )
    if dataset.train.y.shape[1:] != dataset.test.y.shape[1:]:
        raise ValueError(
            f"{where}: targets of a training sample are {tuple(dataset.train.y.shape[1:])}, but of a test sample "
            f"{tuple(dataset.test.y.shape[1:])}; both must be alike"
        )
    _check_normalisation(where, dataset)
    if dataset.crop_padding < 0:
        raise ValueError(f"{where}: crop_padding is {dataset.crop_padding}, but must be 0 (no crop) or more pixels")
    _check_rescale(where, dataset)
    if train.dim() == 4 and dataset.crop_padding >= min(train.shape[1:3]):
        raise ValueError(
            f"{where}: crop_padding is {dataset.crop_padding}, but must be below the images' {min(train.shape[1:3])} "
            "pixels: some crops would hold nothing of them"
        )
    if dataset.augments and train.dim() != 4:
        raise ValueError(
            f"{where}: crop_padding, flip and rescale are for images [n, H, W, C]; set them to 0, false and null"
        )
    if dataset.task != "regression":
        _check_more_than_one(f"{where}: train", dataset)


def check_finite(where: str, values: Tensor) -> None:
    """Refuse nan and infinity in samples [n, ...]; `where` opens the error and names the data.

    Raises ValueError: naming the first sample and, in it, the first entry that is not finite.
    """
    if not values.is_floating_point() or bool(torch.isfinite(values).all()):
        return
    index = torch.nonzero(~torch.isfinite(values))[0].tolist()
    entry = f", entry {tuple(index[1:]) if len(index) > 2 else index[1]}" if len(index) > 1 else ""
    raise ValueError(
        f"{where} is {values[tuple(index)].item()} at sample {index[0]}{entry}; every value must be finite: "
        "repair or drop that sample"
    )


def _check_types(dataset: Dataset) -> None:
    if not isinstance(dataset, Dataset):
        raise ValueError(
            f"the dataset is a {type(dataset).__name__}, but its function must return a Dataset (from "
            "fedcomp.dataset.contract import Dataset, Samples)"
        )
    where, train, test = f"dataset={dataset.name}", dataset.train, dataset.test
    for name, samples in (("train", train), ("test", test)):
        if not isinstance(samples, Samples):
            raise ValueError(f"{where}: {name} is a {type(samples).__name__}, but must be Samples(x, y)")
    tensors: dict[str, Tensor | None] = {"train.x": train.x, "train.y": train.y, "test.x": test.x, "test.y": test.y}
    tensors |= {"train.owner": train.owner, "test.owner": test.owner, "mean": dataset.mean, "std": dataset.std}
    for name, value in tensors.items():
        if not isinstance(value, Tensor) and not (value is None and name.endswith("owner")):
            raise ValueError(
                f"{where}: {name} is a {type(value).__name__}, but must be a tensor, as torch.as_tensor makes it"
            )
        if value is not None and value.layout is not torch.strided:
            raise ValueError(f"{where}: {name} is a sparse tensor, but must be a dense one: give {name}.to_dense()")
        if value is not None and value.requires_grad:
            raise ValueError(f"{where}: {name} requires gradients, which are those of the model: give {name}.detach()")
    if not is_whole(dataset.num_outputs) or dataset.num_outputs < 1:
        raise ValueError(f"{where}: num_outputs is {dataset.num_outputs!r}, but must be a whole number, 1 or more")
    if not isinstance(dataset.class_names, (tuple, list)):
        kind = type(dataset.class_names).__name__
        raise ValueError(f"{where}: class_names is a {kind}, but must be a tuple of words, or () for none")
    if not all(isinstance(name, str) for name in dataset.class_names):
        raise ValueError(
            f"{where}: class_names are {list(dataset.class_names)}, but must be words: tuple(map(str, ...))"
        )
    if dataset.class_names and len(dataset.class_names) != dataset.num_outputs:
        raise ValueError(
            f"{where}: class_names are {len(dataset.class_names)}, but num_outputs is {dataset.num_outputs}; give each "
            "class its name, or none"
        )


def _check_samples(where: str, samples: Samples, dataset: Dataset) -> None:
    x, y = samples.x, samples.y
    if len(samples) == 0:
        raise ValueError(f"{where} has no samples; it needs at least one")
    if len(y) != len(x):
        raise ValueError(f"{where} has {len(x)} inputs x, but {len(y)} labels y; each input needs one")
    if dataset.vocab_size is not None:
        _check_tokens(where, x, dataset.vocab_size)
    elif x.dim() not in (2, 4) or x.dtype not in (torch.uint8, torch.float32):
        raise ValueError(
            f"{where}.x is {x.dtype} {tuple(x.shape)}, but must be uint8 or float32, and [n, F] or, for images, "
            "[n, H, W, C]"
        )
    if x.dim() == 4 and x.shape[1] in (1, 3) and x.shape[2] == x.shape[3] > 4:
        raise ValueError(
            f"{where}.x is {tuple(x.shape)}, which looks like [n, C, H, W], but images are [n, H, W, C]: take "
            "x.permute(0, 2, 3, 1)"
        )
    check_finite(f"{where}.x", x)
    if dataset.task == "segmentation":
        _check_masks(where, x, y, dataset.num_outputs)
    elif dataset.task == "next_token" and dataset.vocab_size is not None and bool((y == NO_TARGET).any()):
        if bool((y == NO_TARGET).all()):
            raise ValueError(f"{where}.y has no target: all are {NO_TARGET}, which does not count")
        _check_classes(where, y.masked_fill(y == NO_TARGET, 0), dataset.num_outputs)
    elif dataset.task != "regression":
        if dataset.task == "classification" and _is_one_hot(y, dataset.num_outputs):
            raise ValueError(f"{where}.y is {tuple(y.shape)} of 0 and 1, but a class is its number: y.argmax(1)")
        _check_classes(where, y, dataset.num_outputs)
        if dataset.task == "classification" and y.dim() > 1 and y.shape[1:].numel() == 1:
            raise ValueError(f"{where}.y is {tuple(y.shape)}, but one class a sample is [n]: y.flatten()")
    else:
        if y.dtype != torch.float32 or tuple(y.shape[1:]) != (dataset.num_outputs,):
            raise ValueError(
                f"{where}.y is {y.dtype} {tuple(y.shape)}, but regression needs float32 [n, {dataset.num_outputs}]"
            )
        check_finite(f"{where}.y", y)
    if dataset.task == "next_token" and x.shape == y.shape and bool(((x == y) | (y == NO_TARGET)).all()):
        raise ValueError(
            f"{where}.y is x itself, which a model copies, but a place's target is the next token: x = tokens[:, :-1], "
            "y = tokens[:, 1:]"
        )
    if samples.owner is not None:
        _check_owners(where, samples.owner, len(samples))


def _check_classes(where: str, labels: Tensor, num_classes: int) -> None:
    if labels.dtype != torch.int64:
        raise ValueError(
            f"{where}.y is {labels.dtype} {tuple(labels.shape)}, but classification needs int64 [n], or [n, ...] for "
            "several targets a sample"
        )
    _check_range(f"{where}.y", labels, num_classes, "classes", "number them so, or correct num_outputs")


def _is_one_hot(y: Tensor, num_classes: int) -> bool:
    """Whether targets [n, num_classes] have a single 1 a sample, and 0 elsewhere."""
    return y.dim() == 2 and y.shape[1] == num_classes > 1 and bool(((y == 0) | (y == 1)).all() & (y.sum(1) == 1).all())


def _check_masks(where: str, x: Tensor, y: Tensor, num_classes: int) -> None:
    if y.dtype != torch.uint8 or x.dim() != 4 or y.shape != x.shape[:3] or num_classes > IGNORED:
        raise ValueError(
            f"{where}.y is {y.dtype} {tuple(y.shape)}, but segmentation of images x {tuple(x.shape)} needs uint8 "
            f"[n, H, W] of the same size, and {IGNORED} classes at most"
        )
    unknown = (y >= num_classes) & (y != IGNORED)
    if bool(unknown.any()):
        sample = int(unknown.flatten(1).any(1).nonzero()[0])
        raise ValueError(
            f"{where}.y is {int(y[sample][unknown[sample]][0])} at a pixel of sample {sample}, but classes are 0 to "
            f"{num_classes - 1}, and {IGNORED} for none; number them so, or correct num_outputs"
        )
    if bool((y == IGNORED).all()):
        raise ValueError(f"{where}.y has no pixel of any class: all are {IGNORED}, which is ignored")


def _check_tokens(where: str, x: Tensor, vocab_size: int) -> None:
    if x.dim() != 2 or x.is_floating_point():
        raise ValueError(f"{where}.x is {x.dtype} {tuple(x.shape)}, but tokens (vocab_size) need integers [n, L]")
    _check_range(f"{where}.x", x, vocab_size, "tokens", "number them so, or correct vocab_size")


def _check_range(where: str, values: Tensor, num: int, what: str, remedy: str) -> None:
    """ValueError unless integers [n, ...] lie in [0, num), naming the first that does not."""
    above = values >= num if num <= torch.iinfo(values.dtype).max else torch.zeros_like(values, dtype=torch.bool)
    outside = torch.nonzero((values < 0) | above)  # torch compares uint8 with 256 as with 0
    if len(outside):
        sample, *entry = outside[0].tolist()
        position = f", entry {tuple(entry) if len(entry) > 1 else entry[0]}" if entry else ""
        raise ValueError(
            f"{where} is {int(values[tuple(outside[0])])} at sample {sample}{position}, but {what} are 0 to {num - 1}; "
            f"{remedy}"
        )


def _check_owners(where: str, owner: Tensor, num_samples: int) -> None:
    if owner.dtype != torch.int64 or tuple(owner.shape) != (num_samples,):
        raise ValueError(
            f"{where}.owner is {owner.dtype} {tuple(owner.shape)}, but must be int64 ({num_samples},), one a sample"
        )
    negative = torch.nonzero(owner < 0).flatten()
    if len(negative):
        sample = int(negative[0])
        raise ValueError(f"{where}.owner is {int(owner[sample])} at sample {sample}, but owners are 0 or more")


def _check_rescale(where: str, dataset: Dataset) -> None:
    if dataset.rescale is None:
        return
    low, high = dataset.rescale
    if not 0 < low <= high < math.inf:
        raise ValueError(f"{where}: rescale is [{low}, {high}], but must be two factors above 0, the smaller first")
    if dataset.crop_padding > 0:
        raise ValueError(
            f"{where}: rescale crops images by itself, but crop_padding is {dataset.crop_padding}: set rescale=null or "
            "crop_padding=0"
        )


def _check_more_than_one(where: str, dataset: Dataset) -> None:
    y = dataset.train.y[dataset.train.y != NO_TARGET] if dataset.some_tokens else dataset.train.y.flatten()
    first = int(y[0])
    if bool((y == first).all()):
        named = f" ('{dataset.class_names[first]}')" if dataset.class_names else ""
        raise ValueError(
            f"{where}.y is class {first}{named} in all {len(dataset.train)} samples, so that there is nothing to tell "
            "apart; classification needs samples of two classes or more"
        )


def _check_normalisation(where: str, dataset: Dataset) -> None:
    channels = dataset.train.x.shape[-1]
    for name, values in (("mean", dataset.mean), ("std", dataset.std)):
        if values.dim() != 1 or len(values) not in (1, channels):
            raise ValueError(
                f"{where}: {name} has shape {tuple(values.shape)}, but needs 1 entry, or {channels}: "
                "one a channel or feature"
            )
        if not bool(torch.isfinite(values).all()):
            raise ValueError(f"{where}: {name} is {values.tolist()}; every entry must be finite")
    if not bool((dataset.std > 0).all()):
        raise ValueError(
            f"{where}: std is {dataset.std.tolist()}; every entry must be above 0, for inputs are divided by it"
        )
