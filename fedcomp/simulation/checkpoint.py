"""Checkpoints: {path: tensor} with round, ledger and config hash, replaced in one step.

Draws are keyed by name, so no generator state is saved: whatever killed a run, it goes on bit for bit.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedcomp.state import flatten, restore
from fedcomp.tracking.atomic import write_atomically

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Attributes:
        round: rounds completed. state: the algorithm's. ledger: `Ledger.counters()`. seconds: spent so far.
    """

    round: int
    state: Any
    ledger: Mapping[str, int]
    seconds: float


def save(path: Path, checkpoint: Checkpoint, config_hash: str) -> None:
    """Replace the checkpoint at `path`. Raises ValueError: the file cannot be written."""
    content = {
        "format": FORMAT,
        "config_hash": config_hash,
        "round": checkpoint.round,
        "seconds": checkpoint.seconds,
        "ledger": dict(checkpoint.ledger),
        "state": {name: tensor.cpu().clone() for name, tensor in flatten(checkpoint.state).items()},
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(path, buffer.getvalue())


def load(path: Path, like: Any, config_hash: str) -> Checkpoint:
    """Read the checkpoint at `path` into the shape and onto the device of the state `like`.

    Raises:
        ValueError: unreadable, half-written, of another configuration or another shape.
    """
    remedy = "overwrite=true starts the run anew"
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        version, found = content["format"], content["config_hash"]
        tensors, ledger = content["state"], content["ledger"]
        done, seconds = int(content["round"]), float(content["seconds"])
    except (OSError, RuntimeError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).strip().split("\n")[0][:120]
        raise ValueError(f"checkpoint {path} is unreadable or half-written ({reason}); {remedy}") from error
    if version != FORMAT or found != config_hash:
        raise ValueError(f"checkpoint {path} is of config {found}, format {version}, not {config_hash}; {remedy}")
    try:
        return Checkpoint(done, restore(like, tensors), ledger, seconds)
    except ValueError as error:
        raise ValueError(f"checkpoint {path} does not fit: {error}; {remedy}") from error
