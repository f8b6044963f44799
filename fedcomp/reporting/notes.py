"""What a reader must know beside the table: runs that are not in it and why, values that are no numbers, gaps.

And what the runs were made with: versions, machines, data, own code; where these differ.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedcomp.core.folders import part_name
from fedcomp.display import units
from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.provenance import Fingerprints, Provenance, SessionRecord
from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.group import RunGroup, by_setting, result_options
from fedcomp.reporting.metrics import Metric, recorded

SHORT = 8
"""Hex digits of a fingerprint or a commit that are shown."""
MOST_NAMED = 4
"""Names of a list that a line has."""
PLACES = ("root", "download")
"""Options of a dataset that say where it lies, not what it is."""


def left_out(runs: Iterable[RecordedRun], groups: Iterable[RunGroup]) -> list[tuple[RecordedRun, str]]:
    """The runs that are in no group, each with the reason: its state, or the run whose seed it repeats."""
    used = {run.folder for one in groups for run in one.runs}
    kept = {(_identity(run), run.seed): run.folder for one in groups for run in one.runs}
    out = []
    for run in runs:
        if run.folder in used:
            continue
        reason = run.state
        if run.finished:
            reason = f"repeats seed {run.seed} of {kept.get((_identity(run), run.seed), 'another folder')}"
        elif run.state == "finished":
            reason = f"finished, but has no record: {RECORD} is missing or empty"
        elif run.state == "running":
            reason = "running, or killed"
        out.append((run, reason))
    return out


def describe(run: RecordedRun, reason: str) -> str:
    """One line on a run that is in no table: where, why, and how far it came."""
    parts = [f"{run.folder}: {reason}"]
    if run.lines:
        last = run.lines[-1]
        rounds = run.config.get("rounds")
        parts.append(f"at round {last['round']}" + (f" of {rounds}" if rounds else ""))
        if "test/accuracy" in last:
            parts.append(f"accuracy {units.percent(last['test/accuracy'])} %")
    if run.error:
        parts.append(run.error.splitlines()[0])
    return ", ".join(parts)


def not_finite(groups: Sequence[RunGroup]) -> list[str]:
    """A line on each run in a group that recorded NaN or infinity: which values, since which round."""
    out = []
    for one in groups:
        for run in one.runs:
            first: dict[str, tuple[int, float]] = {}
            for line in run.lines:
                if all(map(math.isfinite, line.values())):
                    continue
                for key, value in line.items():
                    if not math.isfinite(value):
                        first.setdefault(key, (int(line["round"]), value))
            if first:
                said = ", ".join(f"{key} is {value} from round {round}" for key, (round, value) in first.items())
                out.append(f"{run.folder}: {said}; in the table, its means are not finite either")
    return out


def gaps(groups: Sequence[RunGroup], qualities: Sequence[Metric]) -> list[str]:
    """Seeds that some groups of a setting lack, and lengths or evaluations that differ between runs compared."""
    out = []
    for own in by_setting(groups).values():
        where = f"{own[0].place}: " if own[0].setting else ""
        seeds = {run.seed for one in own for run in one.runs}
        for one in own:
            missing = sorted(seeds - {run.seed for run in one.runs}, key=lambda seed: (seed is None, seed))
            if missing:
                out.append(
                    f"{where}{one.label} has no finished run of seed {', '.join(map(str, missing))}; others have"
                )
        lengths: dict[int, list[str]] = {}
        for one in own:
            lengths.setdefault(int(max(run.lines[-1]["round"] for run in one.runs)), []).append(one.label)
        if len(lengths) > 1:
            said = "; ".join(f"{rounds} rounds: {_some(labels)}" for rounds, labels in sorted(lengths.items()))
            out.append(f"{where}runs of different lengths are compared: {said}")
        for one in own:
            evaluated = [{line["round"] for line in run.lines} for run in one.runs]
            if any(rounds != evaluated[0] for rounds in evaluated):
                shared = len(set.intersection(*evaluated))
                out.append(
                    f"{where}{one.label}: its seeds were evaluated at different rounds; curves show the {shared} shared"
                )
    keys = {metric.key for metric in qualities}
    lacking = [one.label for one in groups if not keys.intersection(recorded(one.runs))]
    if keys and lacking:
        out.append(f"no quality was recorded by {_some(lacking)}")
    return out


def _some(labels: Sequence[str]) -> str:
    """The first few labels, and how many more."""
    few = ", ".join(labels[:MOST_NAMED])
    return few if len(labels) <= MOST_NAMED else f"{few} and {len(labels) - MOST_NAMED} more"


def _identity(run: RecordedRun) -> str:
    """The same for runs that differ only by what changes no result."""
    return json.dumps(result_options(run.config), sort_keys=True, default=str)


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
    if len(known) < len(runs):
        lines.append(f"{len(runs) - len(known)} of {len(runs)} runs keep no provenance: made by an earlier fedcomp")
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
            kept = {key: value for key, value in options.items() if key not in PLACES}
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
