"""Checkpoints: {path: tensor} with round, ledger, config hash and digests of the record, and a checksum of every byte.

The file is torch's (`torch.load` reads it), followed by the SHA-256 of all that comes before. It is written tensor by
tensor, and replaced in one step. The one before is kept as `checkpoint-before.pt`; a run resumes from it if the last is
damaged. Draws are keyed by name, so no generator state is saved: a run that was killed resumes bit for bit from either.
"""

import hashlib
import os
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from fedcomp.core.pytree import flatten, restore
from fedcomp.records.atomic_write import atomic_path, sync
from fedcomp.records.digests import Digests

FORMAT = 3
"""Format 2 had no digests of the record."""
CHECKSUM = b"\nsha256 of all before: %s\n"
"""The last bytes of the file."""
NUM_CHECKSUM = len(CHECKSUM % bytes(64))
REMEDY = "overwrite=true starts the run anew"


class Damaged(ValueError):
    """A checkpoint file is corrupt: its bytes differ from what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Attributes:
        round: rounds completed. ledger: `Ledger.counters()`. seconds: spent so far.
        state: the algorithm's; as `read` gives it {name: tensor}, with the names of `flatten`.
        record: digests of the record's files, whose last line is of `round` or earlier.
        open_ended: whether all rounds so far would be the same in a run of more rounds.
        config_hash: of the run whose file it was read from.
    """

    round: int
    state: Any
    ledger: Mapping[str, int]
    seconds: float
    record: Digests = field(default_factory=dict)
    open_ended: bool = False
    config_hash: str = ""


def save(path: Path, checkpoint: Checkpoint, config_hash: str) -> None:
    """Replace the checkpoint at `path`, and keep it as the one before. Raises ValueError: a file cannot be written."""
    content = {
        "format": FORMAT,
        "config_hash": config_hash,
        "round": checkpoint.round,
        "seconds": checkpoint.seconds,
        "ledger": dict(checkpoint.ledger),
        "record": dict(checkpoint.record),
        "open_ended": checkpoint.open_ended,
        "state": {name: _compact(tensor) for name, tensor in flatten(checkpoint.state).items()},
    }
    with atomic_path(path) as temporary:
        with temporary.open("wb", buffering=0) as file:
            summed = _ChecksumWriter(file)
            try:
                torch.save(content, cast(IO[bytes], summed))
            except RuntimeError as error:
                raise summed.failure or error from error
            summed.write(CHECKSUM % summed.digest.hexdigest().encode())
        sync(temporary)
        if path.exists():
            os.replace(path, before(path))


def resume(path: Path, like: Any, config_hash: str, note: Callable[[str], None]) -> Checkpoint | None:
    """The last checkpoint of a run, or the one before if that one is damaged or gone; None: there is none.

    Args:
        note: callback that receives one line if it is the one before. The damaged one is kept under another name.
    Raises:
        ValueError: both are damaged, or as `load`.
    """
    earlier = before(path)
    if not path.exists():
        if not earlier.exists():
            return None
        start = load(earlier, like, config_hash)
        note(f"{path} is gone: going on from the checkpoint before it, of round {start.round}")
        return start
    try:
        return load(path, like, config_hash)
    except Damaged as damage:
        if not earlier.exists():
            raise
        try:
            start = load(earlier, like, config_hash)
        except Damaged:
            raise Damaged(f"{damage}; so is the one before it, {earlier.name}") from damage
        os.replace(path, _damaged(path))
        what = str(damage).removesuffix(f"; {REMEDY}")
        note(f"{what}, and now called {_damaged(path).name}: going on from the one before it, of round {start.round}")
        return start


def drop_older(path: Path) -> None:
    """Remove what a finished run does not need: the checkpoint before, and one that was found damaged."""
    for other in (before(path), _damaged(path)):
        other.unlink(missing_ok=True)


def load(path: Path, like: Any, config_hash: str) -> Checkpoint:
    """Read the checkpoint at `path` into the shape and onto the device of the state `like`.

    Raises:
        Damaged: it differs from what was written.
        ValueError: it cannot be opened, or is of another configuration or shape.
    """
    saved = read(path)
    if saved.config_hash != config_hash:
        raise ValueError(f"checkpoint {path} is of config {saved.config_hash}, not {config_hash}; {REMEDY}")
    lacking = [name for name in flatten(like) if name not in saved.state]
    if lacking:
        fields = f"it lacks {', '.join(lacking)}, as one of another version of fedcomp does"
        raise ValueError(f"checkpoint {path} does not fit: {fields}; {REMEDY}")
    try:
        return replace(saved, state=restore(like, saved.state))
    except ValueError as error:
        raise ValueError(f"checkpoint {path} does not fit: {error}; {REMEDY}") from error


def read_last(path: Path) -> Checkpoint | None:
    """A run's last checkpoint with its tensors, or of the one before if that is damaged or gone; None: there is none.

    Changes no file. Raises as `read`.
    """
    earlier = before(path)
    try:
        if path.exists():
            return read(path)
    except Damaged:
        if not earlier.exists():
            raise
    return read(earlier) if earlier.exists() else None


def read(path: Path) -> Checkpoint:
    """The checkpoint at `path` with its tensors, on the CPU.

    Raises:
        Damaged: it differs from what was written.
        ValueError: it cannot be opened, or its format is unknown.
    """
    try:
        _check(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
        found = content["format"]
        if found == FORMAT:
            return Checkpoint(
                int(content["round"]),
                content["state"],
                content["ledger"],
                float(content["seconds"]),
                content["record"],
                content.get("open_ended", False),
                content["config_hash"],
            )
    except PermissionError as error:
        raise ValueError(f"cannot read checkpoint {path}: {error.strerror}; {REMEDY}") from error
    except OSError as error:
        raise Damaged(f"checkpoint {path} is damaged ({error.strerror}); {REMEDY}") from error
    except (RuntimeError, EOFError, LookupError, TypeError, ValueError, pickle.UnpicklingError) as error:
        why = str(error) if isinstance(error, Damaged) else "it is cut short or overwritten"
        raise Damaged(f"checkpoint {path} is damaged ({why}); {REMEDY}") from error
    raise ValueError(f"checkpoint {path} has format {found}, which this version of fedcomp cannot read; {REMEDY}")


class _ChecksumWriter:
    """A write-only file object that computes the SHA-256 of what is written.

    Attributes:
        digest: of all so far. failure: why it could not be written, which torch's writer hides behind an error of its
            own; None: it could.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of `data`, which an unbuffered file may take in parts."""
        left = memoryview(data).cast("B")
        self.digest.update(left)
        try:
            while len(left):
                left = left[self._file.write(left) :]
        except OSError as error:
            self.failure = error
            raise
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered."""


def _check(path: Path) -> None:
    """Read the whole file and compare its checksum. Raises Damaged: it differs, or there is none."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - NUM_CHECKSUM))
        match = re.fullmatch(CHECKSUM % b"([0-9a-f]{64})", file.read())
        if match is None:
            raise Damaged("it is cut short or overwritten")
        file.seek(0)
        digest, left = hashlib.sha256(), size - NUM_CHECKSUM
        while left:
            block = file.read(min(left, 1 << 20))
            digest.update(block)
            left -= len(block)
    if digest.hexdigest().encode() != match[1]:
        raise Damaged("its checksum is not the one that was written")


def _compact(tensor: Tensor) -> Tensor:
    """The tensor on the CPU, a copy only if it is elsewhere or a part of a larger one, which would be saved whole."""
    tensor = tensor.detach().cpu()
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if whole and tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format)


def before(path: Path) -> Path:
    """Where the checkpoint before the one at `path` lies."""
    return path.with_name(f"{path.stem}-before{path.suffix}")


def _damaged(path: Path) -> Path:
    return path.with_name(f"{path.stem}-damaged{path.suffix}")
