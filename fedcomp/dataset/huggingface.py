"""A data set that the `datasets` library of Hugging Face has saved on disk: pictures, tables or text.

`datasets.load_dataset("mnist").save_to_disk("mnist")`, run wherever there is a network, makes the folder; here it is
only read, and nothing is downloaded. What a model sees follows from the type of the column `input`: pictures, the bytes
of texts, or, of several columns, a table.

Shape legend: L bytes of a window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedcomp.core.ranges import Whole, checked
from fedcomp.core.validate import by_similarity
from fedcomp.dataset.fetch import below
from fedcomp.dataset.images.decode import Side
from fedcomp.dataset.saved import load_saved

if TYPE_CHECKING:
    from fedcomp.dataset.contract import Dataset, Task
    from fedcomp.dataset.tables.cells import Cells
    from fedcomp.dataset.tables.csv import Missing
    from fedcomp.dataset.tables.tabular import Scaling

Split = Any
"""A `datasets.Dataset`: `features` {column: its type}, and `split[column]`, its values."""


@checked("dataset.")
def load(
    path: str | None,
    root: str = ".",
    input: str | None = None,
    target: str | None = None,
    owner: str | None = None,
    train: str = "train",
    test: str | None = "test",
    test_fraction: float = 0.2,
    split_seed: int = 0,
    size: Side = None,
    channels: int | None = None,
    mean: float | Iterable[float] = 0.5,
    std: float | Iterable[float] = 0.5,
    crop_padding: int = 0,
    flip: bool = False,
    window: Annotated[int, Whole(meaning="bytes that a model sees of a text")] = 80,
    features: Sequence[str] | str | None = "auto",
    exclude: Sequence[str] = (),
    missing: Missing = "refuse",
    scaling: Scaling = "min_max",
    target_scaling: Scaling = "min_max",
    name: str = "huggingface",
) -> Dataset:
    """The columns of `root/path`, the folder that `save_to_disk` wrote: of one split, or of several by name.

    Args:
        input: the column of pictures or of texts; None: the only one of pictures, else, without `target`, the only one
            of texts, else a table of the columns `features`.
        target: the column to predict: classes, or for a table a number. None: the only column of class labels; for
            texts without one the next byte.
        test: the split to test with. None, or no split of that name: `test_fraction` of `train` is held out, of each
            class, or of a table's rows, or of texts, drawn by `split_seed`.
        window: L: the next byte is predicted after each byte of windows that lie side by side; classes from the first L
            bytes of a text.
    Raises:
        ValueError: `datasets` is not installed, a folder that it did not save, a missing split or column, a column
            whose type cannot be used, or an argument out of range.
    """
    splits = _splits(path, root, name, train, test)
    types = {column: type(feature).__name__ for column, feature in splits[0].features.items()}
    for argument, given in (("input", input), ("target", target), ("owner", owner)):
        for split in splits:
            if given is not None and given not in split.features:
                there = ", ".join(by_similarity(given, split.features))
                raise ValueError(f"dataset.{argument}={given} is no column of {path} (there are: {there})")
    if target is None:
        target = _only([column for column, kind in types.items() if kind == "ClassLabel" and column != owner])
    quantities = [column for column, kind in types.items() if kind == "Value" and column != owner]
    texts = [column for column in quantities if splits[0].features[column].dtype == "string"]
    if input is None:
        input = _only([column for column, kind in types.items() if kind == "Image"])
    if input is None and target is None:
        input = _only(texts)
    if target is None and input not in texts:
        raise ValueError(f"dataset={name} needs dataset.target, the column to predict (there are: {', '.join(types)})")
    if input is None:
        from fedcomp.dataset.tables.csv import from_cells

        kind, feature = types[str(target)], splits[0].features[target]
        named = kind == "ClassLabel" or (kind == "Value" and feature.dtype in ("string", "large_string", "bool"))
        task: Task = "classification" if named else "regression"
        scales = (test_fraction, split_seed, scaling, target_scaling)
        cells = _cells(splits, below(root, str(path))[0])
        return from_cells(cells, name, str(target), features, task, scales, True, owner, missing, exclude)
    if types[input] == "Image":
        return _pictures(
            splits,
            name,
            input,
            str(target),
            owner,
            (test_fraction, split_seed),
            size,
            channels,
            {"mean": mean, "std": std, "crop_padding": crop_padding, "flip": flip},
        )
    if input not in texts:
        raise ValueError(f"dataset.input={input} holds {splits[0].features[input]}, but must hold pictures or texts")
    return _texts(splits, name, input, target, owner, (test_fraction, split_seed), window)


def data_files(path: str | None, root: str = ".", **_: object) -> list[Path]:
    """What `load` reads."""
    return [] if path is None else sorted(file for file in below(root, path)[0].rglob("*") if file.is_file())


def _splits(path: str | None, root: str, name: str, train: str, test: str | None) -> list[Split]:
    """The training split, and the test split if there is one."""
    if path is None:
        raise ValueError(
            f"dataset={name} needs dataset.path, the folder of a data set that was saved by its save_to_disk(FOLDER)"
        )
    folder = below(root, path)[0]
    if not folder.is_dir():
        raise ValueError(f"no folder {folder}: datasets.load_dataset(...).save_to_disk({str(folder)!r}) makes it")
    saved = load_saved(folder)
    if hasattr(saved, "features"):
        return [saved]
    if train not in saved:
        raise ValueError(f"dataset.train={train} is no split of {folder} (there are: {', '.join(saved)})")
    return [saved[train], *([saved[test]] if test in saved and test != train else [])]


def _only(columns: Sequence[str]) -> str | None:
    return columns[0] if len(columns) == 1 else None


def _text(value: Any) -> str:
    """A value as the cell of a table."""
    if value is None:
        return ""
    if isinstance(value, (date, time)):  # a date with its time too
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _column(split: Split, name: str) -> list[str]:
    """The cells of a column, classes by their names."""
    feature, values = split.features[name], list(split[name])
    if type(feature).__name__ == "ClassLabel":
        return ["" if value is None or value < 0 else feature.names[value] for value in values]
    if type(feature).__name__ != "Value":
        raise ValueError(f"column '{name}' holds {feature}, but must hold numbers, texts or classes: leave it out")
    return [_text(value) for value in values]


def _cells(splits: Sequence[Split], folder: Path) -> Cells:
    """One table of all splits, as from a file."""
    from fedcomp.dataset.tables.cells import Cells

    sizes = [len(split) for split in splits]
    columns = {
        name: [cell for split in splits for cell in _column(split, name)]
        for name, feature in splits[0].features.items()
        if type(feature).__name__ in ("Value", "ClassLabel")
    }
    lines = [f"row {row} of the {kind} split" for kind, size in zip(("training", "test"), sizes) for row in range(size)]
    held_out = [split is not splits[0] for split in splits for _ in range(len(split))] if len(splits) > 1 else None
    return Cells(folder, columns, lines, held_out)


def _numbered(splits: Sequence[Split], column: str, argument: str) -> tuple[list[str], list[np.ndarray]]:
    """The distinct names of a column in all splits, classes in the order of their type, and each split's numbers."""
    from fedcomp.dataset.tables.tabular import distinct

    cells = [_column(split, column) for split in splits]
    for row, cell in ((row, cell) for own in cells for row, cell in enumerate(own)):
        if not cell:
            raise ValueError(f"row {row} has no value in column '{column}' (dataset.{argument}): drop or repair it")
    feature = splits[0].features[column]
    is_class = type(feature).__name__ == "ClassLabel" and feature.names
    names = list(feature.names) if is_class else distinct([cell for own in cells for cell in own])
    numbers = {name: number for number, name in enumerate(names)}
    return names, [np.array([numbers[cell] for cell in own], np.int64) for own in cells]


def _owners(splits: Sequence[Split], owner: str | None) -> list[np.ndarray | None]:
    """The number of each sample's owner in each split; None: not known."""
    return [None] * len(splits) if owner is None else [*_numbered(splits, owner, "owner")[1]]


def _pictures(
    splits: Sequence[Split],
    name: str,
    input: str,
    target: str,
    owner: str | None,
    held_out: tuple[float, int],
    size: int | None,
    channels: int | None,
    options: dict[str, Any],
) -> Dataset:
    import torch

    from fedcomp.dataset.contract import Samples
    from fedcomp.dataset.images.decode import num_channels, stack
    from fedcomp.dataset.images.image import image_dataset
    from fedcomp.dataset.split import split_classes

    num_channels(channels, "")
    classes, labels = _numbered(splits, target, "target")
    samples, first_coloured = [], ""
    for kind, split, own, of in zip(("training", "test"), splits, labels, _owners(splits, owner)):
        names = [f"{row} of the {kind} split" for row in range(len(split))]
        pixels, coloured = stack(names, lambda row, split=split: split[row][input], size)  # type: ignore[misc]
        first_coloured = first_coloured or coloured
        numbers = None if of is None else torch.from_numpy(of)
        samples.append(Samples(torch.from_numpy(pixels), torch.from_numpy(own), numbers))
    kept = num_channels(channels, first_coloured)
    samples = [replace(one, x=one.x[..., :kept]) for one in samples]
    train, test = samples if len(samples) > 1 else split_classes(samples[0], *held_out)
    return image_dataset(name, train, test, classes, **options)


def _texts(
    splits: Sequence[Split],
    name: str,
    input: str,
    target: str | None,
    owner: str | None,
    held_out: tuple[float, int],
    window: int,
) -> Dataset:
    from fedcomp.dataset.byte_windows import BYTES, beginnings, windows
    from fedcomp.dataset.contract import Dataset
    from fedcomp.dataset.split import split_classes, split_rows

    documents = [[str(text or "").encode() for text in split[input]] for split in splits]
    owners = _owners(splits, owner)
    if target is not None:
        classes, labels = _numbered(splits, target, "target")
        samples = [beginnings(*each, window) for each in zip(documents, labels, owners)]
        train, test = samples if len(samples) > 1 else split_classes(samples[0], *held_out)
        return Dataset(
            name, train, test, "classification", len(classes), class_names=tuple(classes), vocab_size=BYTES,
            padding_token=0,
        )  # fmt: skip
    if len(splits) == 1:
        rows = split_rows(len(documents[0]), *held_out)
        documents = [[documents[0][row] for row in own] for own in rows if len(own)]
        owners = [None if (of := owners[0]) is None else of[own] for own in rows if len(own)]
    samples = [windows(*each, window) for each in zip(documents, owners)]
    return Dataset(name, samples[0], samples[-1], "next_token", BYTES, vocab_size=BYTES)
