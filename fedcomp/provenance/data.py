"""Fingerprints of a run's dataset, and of what its model begins with: files, and frozen tensors.

A dataset's module may have a function `data_files(**options)` that returns the files its samples come from, given the
options of its config; [] if the options determine the samples. The fingerprint is then that of the files, without
loading the dataset. Otherwise it is that of the samples. A model's module may have `model_files(**options)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedcomp.provenance.files import digest, fingerprints
from fedcomp.records.provenance import Fingerprint

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import Tensor

    from fedcomp.dataset.contract import Dataset

FROZEN = "frozen tensors"


def data_parts(options: Mapping[str, Any], load: Callable[[], Dataset]) -> dict[str, Fingerprint]:
    """Fingerprints of the dataset's files or samples.

    Args:
        options: the resolved config group `dataset`.
        load: loads the dataset; called only if its files are unknown.
    Raises:
        ValueError: a file cannot be read, or the dataset cannot be loaded.
    """
    files = _files("data_files", options)
    if files is None:
        return _samples(load())
    if not files:
        return {}
    return fingerprints(files) or _samples(load())


def model_parts(options: Mapping[str, Any], frozen: Mapping[str, Tensor]) -> dict[str, Fingerprint]:
    """Fingerprints of the model's files, and one of all its frozen tensors; {} if it has neither.

    Args:
        options: the resolved config group `model`. frozen: its tensors by name.
    Raises:
        ValueError: a file cannot be read.
    """
    return fingerprints(_files("model_files", options) or []) | _frozen(frozen)


def _files(function: str, options: Mapping[str, Any]) -> list[Path] | None:
    """What the function of this name returns for the options of a config group; None: their module has none such."""
    files_of = getattr(_module(str(options.get("_target_"))), function, None)
    if files_of is None:
        return None
    found = files_of(**{key: value for key, value in options.items() if not key.startswith("_")})
    return [Path(path) for path in ([found] if isinstance(found, str | Path) else found)]


def _frozen(frozen: Mapping[str, Tensor]) -> dict[str, Fingerprint]:
    if not frozen:
        return {}
    import torch

    pieces: list[bytes | memoryview] = []
    for name, tensor in frozen.items():
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        pieces += [f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), content.data]
    size = sum(len(piece) for piece in pieces[1::2])
    return {FROZEN: Fingerprint(digest(*pieces), len(frozen), size)}


def _module(target: str) -> ModuleType | None:
    """The module that a dotted name of a function or method begins with; None if there is none."""
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
    owner = [] if dataset.train.owner is None else [("train.owner", dataset.train.owner)]
    found = {}
    for name, tensor in [*tensors, *owner, ("mean", dataset.mean), ("std", dataset.std)]:
        array = tensor.detach().cpu().contiguous().numpy()
        header = f"{array.dtype} {array.shape}".encode()
        found[name] = Fingerprint(digest(header, array.reshape(-1).view("uint8").data), 1, array.nbytes)
    return found
