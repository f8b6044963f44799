"""What a run was made of and where, `provenance.json`: data, own code, and every session that worked on it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedcomp.core.parse import parse_json
from fedcomp.records.atomic_write import write_atomically

FILE = "provenance.json"


@dataclass(frozen=True)
class Fingerprint:
    """A file, the files of a folder, or a tensor.

    Attributes:
        digest: changes with the content. files: how many. bytes: of all of them.
    """

    digest: str
    files: int
    bytes: int


Fingerprints = Mapping[str, Fingerprint]
"""Fingerprints by name: what a run's data, or the user's own code, consists of."""


@dataclass(frozen=True)
class Commit:
    """Where a git repository stood.

    Attributes:
        folder: of the repository. commit: its full hash.
        clean: whether no tracked file differed from the commit, but for those of docs/.
    """

    folder: str
    commit: str
    clean: bool


@dataclass(frozen=True)
class SessionRecord:
    """One session: from a start or a resume of the run to its end or interruption.

    Attributes:
        start, end: ISO 8601 in UTC; end is None while it lasts, and if it was killed.
        from_round, to_round: rounds complete at the start and at the end. state: `status.json` at the end.
        host: the machine. job: of Slurm, if any. device: as the config has it. processor: of the device, in words.
        bfloat16: what is known of its products on this processor; None: there are none.
        threads: of this process. processes: of the run, 1 without torchrun.
        versions: of fedcomp and the packages that compute. commits: of fedcomp's and the user's own code.
        accepted: data and code that had changed since the session before, and were accepted.
        forms: the accelerated forms that agreed with the plain ones and were used, and those that were refused.
    """

    start: str
    host: str
    device: str
    processor: str
    threads: int
    processes: int
    versions: Mapping[str, str]
    commits: tuple[Commit, ...] = ()
    job: str | None = None
    from_round: int = 0
    to_round: int | None = None
    end: str | None = None
    state: str | None = None
    accepted: tuple[str, ...] = ()
    bfloat16: str | None = None
    forms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """Of one run.

    Attributes:
        data, code: what the last session read. sessions: in order.
        since: the round from which all this is known; not 0 if the file was removed meanwhile.
        model: the files that the model is read from, and its frozen tensors, which no checkpoint has.
        continues: the finished run of fewer rounds that this one went on from, whose sessions are the first here.
        unused: folders of the config that its algorithm does not use, of `compressor` and `downlink`.
    """

    data: Fingerprints
    code: Fingerprints
    sessions: tuple[SessionRecord, ...] = field(default_factory=tuple)
    since: int = 0
    model: Fingerprints = field(default_factory=dict)
    continues: str | None = None
    unused: tuple[str, ...] = ()


def write_provenance(folder: Path, provenance: Provenance) -> None:
    """Replace `provenance.json`. Raises ValueError: the folder cannot be written."""
    write_atomically(folder / FILE, json.dumps(asdict(provenance), indent=1).encode() + b"\n")


def read_provenance(folder: Path) -> Provenance | None:
    """The run's provenance; None if it keeps none. Raises ValueError: the file cannot be understood."""
    path = folder / FILE
    try:
        content = parse_json(path.read_bytes())
        sessions = tuple(_session(one) for one in content["sessions"])
        model = _parts(content.get("model", content.get("frozen", {})))
        data, code, since = _parts(content["data"]), _parts(content["code"]), int(content["since"])
        unused = tuple(content.get("unused", ()))
        return Provenance(data, code, sessions, since, model, content.get("continues"), unused)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: remove it to go on without, or run anew (overwrite=true)") from error


def differences(before: Fingerprints, now: Fingerprints) -> Iterator[str]:
    """What changed, was added or is gone, a few words each."""
    for name in sorted({*before, *now}):
        one, other = before.get(name), now.get(name)
        if one is None:
            yield f"{name} is new"
        elif other is None:
            yield f"{name} is gone"
        elif one.files != other.files:
            yield f"{name} has {other.files} files instead of {one.files}"
        elif one.digest != other.digest:
            yield f"{name} has changed"


def _session(content: dict[str, Any]) -> SessionRecord:
    commits = tuple(Commit(**one) for one in content.pop("commits"))
    if not all(isinstance(text, str) for one in commits for text in (one.folder, one.commit)):
        raise TypeError("a commit is no text")
    content["versions"] = dict(content["versions"])
    texts: dict[str, Any] = {name: tuple(content.pop(name, ())) for name in ("accepted", "forms")}
    known = {name: value for name, value in content.items() if name in SessionRecord.__dataclass_fields__}
    return SessionRecord(**known, commits=commits, **texts)  # a later version may record more


def _parts(content: Mapping[str, Any]) -> dict[str, Fingerprint]:
    return {name: Fingerprint(**part) for name, part in content.items()}
