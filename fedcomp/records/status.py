"""How far a run is, `status.json`: always a whole file, replaced in one step."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

from fedcomp.core.parse import parse_json
from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.digests import Digests

FILE = "status.json"

State = Literal["running", "finished", "failed", "interrupted"]


@dataclass(frozen=True)
class Status:
    """A run's state.

    Attributes:
        state: running (also of a run that was killed), finished, failed, interrupted.
        round: rounds completed.
        error: one line, of a failed run.
        record: of a finished run, the digests of its record's files.
    """

    state: State
    round: int
    error: str | None = None
    record: Digests = field(default_factory=dict)


def write_status(folder: Path, status: Status) -> None:
    """Replace `status.json`. Raises ValueError: the folder cannot be written."""
    write_atomically(folder / FILE, json.dumps(asdict(status)).encode() + b"\n")


def read_status(folder: Path) -> Status | None:
    """The run's status, None if it has none yet. Raises ValueError: the file cannot be read, or is no status."""
    path = folder / FILE
    try:
        data = parse_json(path.read_bytes())
        error = None if data.get("error") is None else str(data["error"])
        status = Status(data["state"], int(data["round"]), error, dict(data.get("record", {})))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as damage:
        raise ValueError(f"{path} is no status file; remove it or run again with overwrite=true") from damage
    if not 0 <= status.round < 2**63:
        raise ValueError(f"{path} is no status file: it says that {status.round} rounds are done")
    if status.state not in get_args(State):
        raise ValueError(f"{path}: state is {status.state!r}, allowed are {', '.join(get_args(State))}")
    return status
