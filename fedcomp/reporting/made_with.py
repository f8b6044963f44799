"""What the runs of a report were made with: versions, machines, data, own code; and where these differ."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedcomp.core.folders import part_name
from fedcomp.display import units
from fedcomp.records.provenance import Fingerprints, Provenance, SessionRecord
from fedcomp.records.reader import RecordedRun
from fedcomp.records.run_folder import WITHOUT_EFFECT
from fedcomp.reporting.group import RunGroup

SHORT = 8
"""Hex digits of a fingerprint or a commit that are shown."""
MOST_NAMED = 4
"""Names of a dataset's parts that a line has."""


def made_with(groups: Iterable[RunGroup]) -> list[str]:
    """The lines; none if no run of the groups keeps a `provenance.json`."""
    runs = [run for one in groups for run in one.runs]
    known: dict[Path, Provenance] = {}
    broken = []
    for run in runs:
        try:
            found = run.files.provenance()
        except ValueError as error:
            broken.append(str(error))
            continue
        if found is not None:
            known[run.folder] = found
    if not known and not broken:
        return []
    sessions = [session for found in known.values() for session in found.sessions]
    lines = [_versions(sessions), _machines(sessions), *_data(runs, known), *_code(list(known.values()))]
    lines += [
        f"{folder} went on although {', '.join(session.accepted)} (accept_changes=true)"
        for folder, found in known.items()
        for session in found.sessions
        if session.accepted
    ]
    if without := len(runs) - len(known) - len(broken):
        lines.append(f"{without} of {len(runs)} runs keep no provenance: made by an earlier fedcomp")
    return [line for line in [*lines, *broken] if line]


def _versions(sessions: Sequence[SessionRecord]) -> str:
    names = dict.fromkeys(name for session in sessions for name in session.versions)
    parts = [f"{name} {_counted(session.versions.get(name, 'none') for session in sessions)}" for name in names]
    commits = [_counted(_commits(session) for session in sessions)] if any(one.commits for one in sessions) else []
    return ", ".join([*parts, *commits])


def _commits(session: SessionRecord) -> str:
    shown = (f"{one.commit[:SHORT]}{'' if one.clean else ' with changes'}" for one in session.commits)
    return f"commit {' and '.join(shown)}" if session.commits else "no commit"


def _machines(sessions: Sequence[SessionRecord]) -> str:
    if not sessions:
        return ""
    where = _counted(f"{one.device} ({one.processor}) of {one.host}" for one in sessions)
    threads = _counted(str(one.threads) for one in sessions)
    first, last = min(one.start for one in sessions), max(one.end or one.start for one in sessions)
    number = units.counted(len(sessions), "session")
    return f"{number} from {_time(first)} to {_time(last)} UTC on {where}, threads: {threads}"


def _time(iso: str) -> str:
    return iso.replace("T", " ")[:16]


def _data(runs: Sequence[RecordedRun], known: dict[Path, Provenance]) -> Iterator[str]:
    """One line for each dataset, in capitals where runs of the same one read different content."""
    of: dict[str, list[tuple[RecordedRun, Fingerprints]]] = {}
    for run in runs:
        if run.folder in known:
            options = run.config.get("dataset") or {}
            kept = {key: value for key, value in options.items() if f"dataset.{key}" not in WITHOUT_EFFECT}
            of.setdefault(json.dumps(kept, sort_keys=True, default=str), []).append((run, known[run.folder].data))
    for same in of.values():
        name = _name(same[0][0])
        seen = Counter(_digest_text(parts) for _, parts in same)
        if len(seen) == 1:
            yield f"data of {name}: {next(iter(seen))}"
        else:
            yield f"NOT THE SAME DATA of {name}: " + "; ".join(f"{words} ({num} runs)" for words, num in seen.items())


def _name(run: RecordedRun) -> str:
    options = run.config.get("dataset") or {}
    return str(options.get("name") or part_name(options.get("_target_", "?")))


def _code(known: Sequence[Provenance]) -> Iterator[str]:
    of: dict[str, set[str]] = {}
    for found in known:
        for name, part in found.code.items():
            of.setdefault(name, set()).add(part.digest[:SHORT])
    if of:
        yield "own code: " + ", ".join(f"{name} {' or '.join(sorted(seen))}" for name, seen in sorted(of.items()))


def _digest_text(parts: Fingerprints) -> str:
    if not parts:
        return "made by its settings"
    if len(parts) == 1:
        ((name, part),) = parts.items()
        return f"{name} {part.digest[:SHORT]}"
    whole = hashlib.blake2b(json.dumps({name: part.digest for name, part in sorted(parts.items())}).encode())
    names = ", ".join(list(parts)[:MOST_NAMED]) + (", …" if len(parts) > MOST_NAMED else "")
    return f"{names}, together {whole.hexdigest()[:SHORT]}"


def _counted(values: Iterable[str]) -> str:
    """The one value, or each with how many sessions have it."""
    seen = Counter(values)
    if len(seen) == 1:
        return next(iter(seen))
    return " / ".join(f"{value} ({number})" for value, number in seen.most_common())
