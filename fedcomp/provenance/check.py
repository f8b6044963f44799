"""Whether a run is still made of what it began with: other data or code is refused, other versions are said."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fedcomp.dataset.contract import Dataset
from fedcomp.provenance.code import code_files, code_parts
from fedcomp.provenance.data import data_parts
from fedcomp.provenance.machine import commits, host, job, now, processor, versions
from fedcomp.records.provenance import (
    Fingerprints,
    Provenance,
    SessionRecord,
    differences,
    read_provenance,
    write_provenance,
)
from fedcomp.records.status import read_status

SWITCH = "accept_changes"
MOST_SAID = 3
UNKNOWN = "an earlier fedcomp began this run and noted nothing of its data and code: they cannot be compared"


@dataclass(frozen=True)
class RunInputs:
    """What a run reads beside its config: fingerprints of its data, and of the user's own code."""

    data: Fingerprints
    code: Fingerprints

    def changed(self, since: Provenance) -> list[str]:
        """What differs from what the run's last session read, a few words each; code first, which may make the data."""
        data, code = differences(since.data, self.data), differences(since.code, self.code)
        return [f"code: {one}" for one in code] + [f"data: {one}" for one in data]


def run_inputs(config: Mapping[str, Any], load: Callable[[], Dataset]) -> RunInputs:
    """What the run of this resolved config reads now; `load` gives its dataset, and is called only where needed."""
    return RunInputs(data_parts(config["dataset"], load), code_parts(config))


@dataclass(frozen=True)
class Finished:
    """Looks whether finished runs are still results of their config; each dataset is looked at once.

    Attributes:
        load: gives the dataset of a resolved config.
    """

    load: Callable[[Mapping[str, Any]], Dataset]
    _known: dict[str, RunInputs] = field(default_factory=dict)

    def check(self, folder: Path, config: Mapping[str, Any]) -> str | None:
        """One line on what is not as it was, for a run where that is accepted; None if all is.

        Raises:
            ValueError: data or code have changed since, and nobody accepted that.
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
                f"this run is finished, but with other data or code than there are now: {_some(changed)}; run it anew "
                f"(overwrite=true), put them back, or keep its result ({SWITCH}=true)"
            )
        return f"finished with other data or code than there are now: {_some(changed)}"


@dataclass
class Begun:
    """A session that is about to work on a run, and that notes its start and its end.

    Attributes:
        folder: of the run. found: what the session reads. session: where it runs, and with what.
        before: the provenance so far; None if the run starts anew, or an earlier fedcomp began it.
        notes: lines for the user.
    """

    folder: Path
    found: RunInputs
    session: SessionRecord
    before: Provenance | None = None
    notes: tuple[str, ...] = ()

    def start(self, round: int) -> None:
        """Note that the session goes on after `round` rounds."""
        self.session = replace(self.session, from_round=round)
        self._write()

    def __enter__(self) -> Begun:
        return self

    def __exit__(self, *_: object) -> None:
        """Note how the session ended, if it had started."""
        status, kept = read_status(self.folder), read_provenance(self.folder)
        if status is not None and kept is not None and kept.sessions[-1:] == (self.session,):
            self.session = replace(self.session, end=now(), to_round=status.round, state=status.state)
            self._write()

    def _write(self) -> None:
        earlier = self.before.sessions if self.before is not None else ()
        since = self.before.since if self.before is not None else self.session.from_round
        kept = Provenance(self.found.data, self.found.code, (*earlier, self.session), since)
        write_provenance(self.folder, kept)


def begin(
    folder: Path, config: Mapping[str, Any], found: RunInputs, resumes: bool, device: torch.device, **counts: int
) -> Begun:
    """Compare with the sessions before, if the run goes on from a checkpoint.

    Args:
        found: what this session reads. resumes: whether there is a checkpoint. counts: `threads` and `processes`.
    Raises:
        ValueError: data or code have changed, and nobody accepted that.
    """
    files = code_files(config).values()
    where = host(), str(config["device"]), processor(device), counts["threads"], counts["processes"]
    session = SessionRecord(now(), *where, versions(), commits(files), job())
    if not resumes:
        return Begun(folder, found, session)
    before = read_provenance(folder)
    if before is None:
        return Begun(folder, found, session, notes=(UNKNOWN,))
    changed, notes = found.changed(before), []
    if changed and not config[SWITCH]:
        raise ValueError(
            f"data or code have changed since this run's last session: {_some(changed)}; put them back, start anew "
            f"(overwrite=true), or go on all the same, which is noted ({SWITCH}=true)"
        )
    if changed:
        notes.append(f"going on with other data or code: {_some(changed)} ({SWITCH}=true)")
    others = list(_other_versions(before.sessions[-1], session)) if before.sessions else []
    if others:
        notes.append(f"warning: going on with {', '.join(others)}: the end may differ from an unbroken run's")
    return Begun(folder, found, replace(session, accepted=tuple(changed)), before, tuple(notes))


def _other_versions(before: SessionRecord, session: SessionRecord) -> Iterator[str]:
    for name in dict.fromkeys(itertools.chain(before.versions, session.versions)):
        one, other = before.versions.get(name), session.versions.get(name)
        if one != other:
            yield f"{name} {other or 'gone'} instead of {one or 'none'}"
    if before.processor != session.processor:
        yield f"{session.processor} instead of {before.processor}"


def _some(changed: list[str]) -> str:
    more = f" and {len(changed) - MOST_SAID} more" if len(changed) > MOST_SAID else ""
    return ", ".join(changed[:MOST_SAID]) + more
