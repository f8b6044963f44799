"""Fingerprints of what a run's dataset is read from, whatever the dataset.

A dataset's module may say by `data_files(**options)`, with the options of its config, which files its samples come
from; [] if the options alone make them. The fingerprint is then had without loading anything. Where a module says
nothing, as a user's own may, the samples themselves are taken.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from torch import Tensor

from fedcomp.dataset.contract import Dataset
from fedcomp.provenance.files import digest, fingerprints
from fedcomp.records.provenance import Fingerprint


def data_parts(options: Mapping[str, Any], load: Callable[[], Dataset]) -> dict[str, Fingerprint]:
    """What the dataset of this config is made of.

    Args:
        options: the resolved config group `dataset`.
        load: gives the dataset; called only if its files are not known.
    Raises:
        ValueError: a file cannot be read, or the dataset cannot be loaded.
    """
    named = getattr(_module(str(options.get("_target_"))), "data_files", None)
    if named is None:
        return _samples(load())
    files = named(**{key: value for key, value in options.items() if not key.startswith("_")})
    if not files:
        return {}
    return fingerprints(files) or _samples(load())


def _module(target: str) -> ModuleType | None:
    """The module that the dotted name of a function, or of a method, begins with; None if there is none."""
    name = target
    while "." in name:
        name = name.rpartition(".")[0]
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
                raise ValueError(f"dataset._target_={target}: {missing}") from missing
    return None


def _samples(dataset: Dataset) -> dict[str, Fingerprint]:
    splits = (("train", dataset.train), ("test", dataset.test))
    tensors = [(f"{name}.{kind}", getattr(split, kind)) for name, split in splits for kind in ("x", "y")]
    return dict(_parts([*tensors, ("mean", dataset.mean), ("std", dataset.std)]))


def _parts(tensors: Iterable[tuple[str, Tensor]]) -> Iterable[tuple[str, Fingerprint]]:
    for name, tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        form = f"{array.dtype} {array.shape}".encode()
        yield name, Fingerprint(digest(form, array.reshape(-1).view("uint8").data), 1, array.nbytes)
