"""Compares a run's data and code with its earlier sessions': changes are errors, other versions are warnings."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcomp.provenance.code import code_files, code_parts
from fedcomp.provenance.data import FROZEN, data_parts, model_parts
from fedcomp.provenance.machine import commits, device_versions, job, now, processor, versions
from fedcomp.records.provenance import (
    Fingerprints,
    Provenance,
    SessionRecord,
    differences,
    read_provenance,
    write_provenance,
)
from fedcomp.records.status import read_status

if TYPE_CHECKING:  # torch takes seconds to import
    import torch
    from torch import Tensor

    from fedcomp.dataset.contract import Dataset

SWITCH = "accept_changes"
MAX_LISTED = 3
UNKNOWN = "there is no record of what data and code this run began with (provenance.json): they cannot be compared"


@dataclass(frozen=True)
class RunInputs:
    """What a run reads besides its config: fingerprints of its data, the user's own code, what its model begins with.

    Attributes:
        model: files and frozen tensors; None: not known, as of a finished run, whose model is not built.
    """

    data: Fingerprints
    code: Fingerprints
    model: Fingerprints | None = None

    def changed(self, since: Provenance) -> list[str]:
        """The differences from the run's last session, a few words each; code first, as it may produce the data."""
        data, code = differences(since.data, self.data), differences(since.code, self.code)
        model = () if self.model is None else _in_model(since.model, self.model)
        kinds = {"code": code, "data": data, "model": model}
        return [f"{kind}: {one}" for kind, found in kinds.items() for one in found]


def run_inputs(
    config: Mapping[str, Any], load: Callable[[], Dataset], frozen: Mapping[str, Tensor] | None = None
) -> RunInputs:
    """What the run of this resolved config reads now.

    Args:
        load: loads its dataset; called only if needed. frozen: the model's frozen tensors by name; None: not known.
    """
    parts = None if frozen is None else model_parts(config["model"], frozen)
    return RunInputs(data_parts(config["dataset"], load), code_parts(config), parts)


def check_model(folder: Path, options: Mapping[str, Any], frozen: Mapping[str, Tensor]) -> None:
    """Raise ValueError if a run's model does not begin with what it was trained with, as far as that is there.

    Args:
        options: the resolved config group `model`. frozen: the model's frozen tensors by name; {}: not known.
    """
    before = read_provenance(folder)
    changed = [] if before is None else _in_model(before.model, model_parts(options, frozen))
    if changed == [f"{FROZEN} has changed"]:
        raise ValueError(
            f"{folder}: the model's {FROZEN} are not those of the run: restore the file that the model reads them from"
        )
    if changed:
        raise ValueError(f"{folder}: the model's files are not those of the run: {_some(changed)}; restore them")


def changed_code(folder: Path, config: Mapping[str, Any]) -> str | None:
    """What is said of a run whose own code is another now than in its last session; None: it is the same."""
    before = read_provenance(folder)
    changed = [] if before is None else list(differences(before.code, code_parts(config)))
    if not changed:
        return None
    return (
        f"{folder}: the code has changed since the run: {_some(changed)}; its weights lie in the order of that code's "
        "parameters, and may be in the wrong places of this one's"
    )


def changed_data(folder: Path, options: Mapping[str, Any], dataset: Dataset) -> str | None:
    """What is said of a run whose data are others now than in its last session; None: they are the same.

    Files with the same content under a name that was not there before are the same.

    Args:
        options: the resolved config group `dataset`. dataset: what it gives now.
    """
    before = read_provenance(folder)
    now = data_parts(options, lambda: dataset)
    if before is None or _renamed(before.data, now):
        return None
    changed = list(differences(before.data, now))
    return (
        f"{folder}: the data have changed since the run: {_some(changed)}; test samples may be others than the run's, "
        "even some that it was trained with"
    )


def _renamed(before: Fingerprints, now: Fingerprints) -> bool:
    """Whether nothing differs but names of files."""
    common = before.keys() & now.keys()
    gone, new = (sorted(str(own[name]) for name in own.keys() - common) for own in (before, now))
    return gone == new and all(before[name] == now[name] for name in common)


def _in_model(before: Fingerprints, now: Fingerprints) -> list[str]:
    """Differences in what both have: of files by their names, else of the frozen tensors."""
    common = before.keys() & now.keys()
    found = list(differences({name: before[name] for name in common}, {name: now[name] for name in common}))
    return [one for one in found if not one.startswith(FROZEN)] or found


@dataclass(frozen=True)
class FinishedRuns:
    """Checks whether the data and code of finished runs are unchanged; reads each dataset once.

    Attributes:
        load: loads the dataset of a resolved config.
    """

    load: Callable[[Mapping[str, Any]], Dataset]
    _known: dict[str, RunInputs] = field(default_factory=dict)

    def check(self, folder: Path, config: Mapping[str, Any]) -> str | None:
        """Check one run. Returns a line about accepted changes; None if nothing has changed.

        Raises ValueError: data or code have changed, and the config does not accept changes.
        """
        before = read_provenance(folder)
        if before is None:
            return UNKNOWN
        key = repr([config["dataset"], sorted(map(str, code_files(config).values()))])
        if key not in self._known:
            self._known[key] = run_inputs(config, lambda: self.load(config))
        changed = self._known[key].changed(before)
        if not changed:
            return None
        if not config[SWITCH]:
            raise ValueError(
                f"this run is finished, but its data or code have changed since: {_some(changed)}; run it again "
                f"(overwrite=true), restore them, or keep its result ({SWITCH}=true)"
            )
        return f"finished, but its data or code have changed since: {_some(changed)}"


@dataclass
class SessionProvenance:
    """Records the start and the end of a session in the run's provenance; a context manager.

    Attributes:
        folder: of the run. inputs: what the session reads. session: its machine, versions and times.
        before: the provenance so far; None if the run starts from the beginning, or keeps none.
        notes: lines for the user. unused: as in `Provenance`.
    """

    folder: Path
    inputs: RunInputs
    session: SessionRecord
    before: Provenance | None = None
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    _started: bool = False

    def start(self, round: int) -> None:
        """Record that the session continues after round `round`."""
        self.session = replace(self.session, from_round=round)
        self._started = True
        self._write()

    def __enter__(self) -> SessionProvenance:
        return self

    def __exit__(self, *_: object) -> None:
        """Record how the session ended, if it had started; also where the file was deleted meanwhile."""
        status = read_status(self.folder)
        if status is not None and self._started:
            self.session = replace(self.session, end=now(), to_round=status.round, state=status.state)
            self._write()

    def _write(self) -> None:
        from fedcomp.core.accelerated import judge  # which imports torch: where a session works, it is there

        self.session = replace(self.session, forms=judge().in_words())
        inputs, before = self.inputs, self.before or Provenance({}, {}, since=self.session.from_round)
        sessions, model = (*before.sessions, self.session), inputs.model or {}
        now_read = replace(before, data=inputs.data, code=inputs.code, model=model)
        write_provenance(self.folder, replace(now_read, sessions=sessions, unused=self.unused))


def session_provenance(
    folder: Path,
    config: Mapping[str, Any],
    inputs: RunInputs,
    resumes: bool,
    device: torch.device,
    bfloat16: str | None,
    threads: int,
    processes: int,
) -> SessionProvenance:
    """The provenance of a new session, compared with that of the last session if the run resumes from a checkpoint.

    Args:
        inputs: what this session reads. resumes: whether there is a checkpoint. bfloat16, threads, processes: as in
            the record.
    Raises:
        ValueError: data or code have changed, and the config does not accept changes.
    """
    files = code_files(config).values()
    machine = socket.gethostname(), str(config["device"]), processor(device), threads, processes
    session = SessionRecord(
        now(), *machine, versions() | device_versions(device), commits(files), job(), bfloat16=bfloat16
    )
    if not resumes:
        return SessionProvenance(folder, inputs, session)
    before = read_provenance(folder)
    if before is None:
        return SessionProvenance(folder, inputs, session, notes=(UNKNOWN,))
    changed, notes = inputs.changed(before), []
    if changed and not config[SWITCH]:
        raise ValueError(
            f"data or code have changed since this run's last session: {_some(changed)}; restore them, start again "
            f"(overwrite=true), or resume with the changes, which are recorded ({SWITCH}=true)"
        )
    if changed:
        notes.append(f"resuming with other data or code: {_some(changed)} ({SWITCH}=true)")
    others = list(_other_versions(before.sessions[-1], session)) if before.sessions else []
    if others:
        notes.append(
            f"warning: resuming with {', '.join(others)}: the result may differ from that of an uninterrupted run"
        )
    return SessionProvenance(folder, inputs, replace(session, accepted=tuple(changed)), before, tuple(notes))


def _other_versions(before: SessionRecord, session: SessionRecord) -> Iterator[str]:
    for name in dict.fromkeys((*before.versions, *session.versions)):
        one, other = before.versions.get(name), session.versions.get(name)
        if one != other:
            yield f"{name} {other or 'gone'} instead of {one or 'none'}"
    if before.processor != session.processor:
        yield f"{session.processor} instead of {before.processor}"


def _some(changed: list[str]) -> str:
    more = f" and {len(changed) - MAX_LISTED} more" if len(changed) > MAX_LISTED else ""
    return ", ".join(changed[:MAX_LISTED]) + more
