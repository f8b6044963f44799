"""`fedcomp-clean PATH`: lists failed, superseded and duplicate runs, and removes them after asking."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcomp.config.identity import config_hash, identity
from fedcomp.display import units
from fedcomp.records.atomic_write import explained
from fedcomp.records.metrics_file import comparable
from fedcomp.records.reader import RunFiles
from fedcomp.records.run_folder import CHECKPOINT, IDENTITY, owned
from fedcomp.records.status import FILE as STATUS
from fedcomp.runtime.command import command, exit_status
from fedcomp.status.runs import GOING, RunState, run_states

KINDS = ("failed", "superseded", "duplicate")
DESCRIPTION = """\
List failed, superseded and duplicate runs, and remove them after asking.

    failed      ended with an error
    superseded  interrupted or killed, while the same settings and seed are finished in another folder: another name,
                or the folder of another version of fedcomp
    duplicate   finished, with the same settings, seed and record as another finished run, apart from the seconds

No other finished run is removed, nor one that a process works on or that Slurm is about to run.
"""
EXAMPLES = """\
examples:
  fedcomp-clean outputs/grid                     list, ask, remove
  fedcomp-clean outputs --only failed --dry-run  only list
  fedcomp-clean outputs --only duplicate --yes   remove without asking

exit status: 0 done or nothing to do, 1 not removed, 2 a wrong argument (one line on standard error)"""


@dataclass(frozen=True)
class Candidate:
    """A run that may be removed.

    Attributes:
        folder: of the run. kind: one of KINDS. reason: its error, or the run that stays. num_bytes: of its files.
    """

    folder: Path
    kind: str
    reason: str
    num_bytes: int


def main(argv: Sequence[str] | None = None) -> int:
    """List, ask, remove. Returns the exit status."""
    parser = command("fedcomp-clean", DESCRIPTION, EXAMPLES)
    parser.add_argument("path", nargs="?", default="outputs", help="a folder that holds runs; default: outputs")
    parser.add_argument("--only", choices=KINDS, action="append", help="this kind; may be given again; default: all")
    parser.add_argument("--dry-run", action="store_true", help="only list")
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    given = parser.parse_args(argv)
    return exit_status(lambda: _clean(Path(given.path), tuple(given.only or KINDS), given.dry_run, given.yes))


def _clean(root: Path, kinds: Sequence[str], dry_run: bool, yes: bool) -> int:
    if dry_run and yes:
        raise ValueError("--dry-run and --yes exclude each other: give one")
    found = [one for one in candidates(root) if one.kind in kinds]
    for one in found:
        print(f"{one.kind}: {one.folder} ({units.size(one.num_bytes)}): {one.reason}")
    if not found:
        print(f"nothing to remove under {root}: no run is {' or '.join(kinds)}")
        return 0
    total = f"{units.counted(len(found), 'run')}, {units.size(sum(one.num_bytes for one in found))}"
    if dry_run:
        print(f"{total}; nothing was removed")
        return 0
    if not yes:
        if not sys.stdin.isatty():
            raise ValueError(
                f"{total}, and no terminal to ask on: give --yes to remove them, or --dry-run to list them"
            )
        print(f"remove {total}? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):  # "" after Ctrl-D
            print("nothing was removed")
            return 1
    left = [line for line in map(_removed, found) if line is not None]
    print(f"removed {len(found) - len(left)} of {total}")
    for line in left:
        print(f"left: {line}", file=sys.stderr)
    return int(bool(left))


def candidates(root: Path) -> list[Candidate]:
    """The runs under a folder that may be removed, in the order of their paths.

    Raises ValueError: there is no such folder, or no run in it.
    """
    runs = [run for run in run_states(root).runs if run.state not in GOING and run.config]
    same: dict[str, list[RunState]] = {}
    for run in runs:
        key = json.dumps([_identity(run.config), run.seed], sort_keys=True, default=str)
        same.setdefault(key, []).append(run)
    found = [one for group in same.values() for one in _of_group(group)]
    return sorted(found, key=lambda one: one.folder)


def _identity(config: dict[str, Any]) -> Any:
    """The settings, with the device that the run recorded for `device=auto`; an incomplete config as it is."""
    try:
        return identity(config)
    except (KeyError, TypeError, AttributeError):
        return config


def _of_group(group: Sequence[RunState]) -> Iterable[Candidate]:
    """The candidates among runs of the same settings and seed."""
    done = sorted((run for run in group if run.state == "done"), key=_preference)
    for run in group:
        if run.state == "done" or RunFiles(run.folder).held or run.folder.is_symlink():
            continue
        if run.state == "failed":
            yield _candidate(run, "failed", run.error or "no error message")
        elif done:
            yield _candidate(run, "superseded", f"{run.state}, and finished in {done[-1].folder}")
    again = reversed(done) if len(done) > 1 else ()
    records = [(run, _record(run.folder)) for run in again]  # the preferred one first
    for place, (run, record) in enumerate(records):
        kept = next((other for other, its in records[:place] if record and its == record), None)
        if kept is not None and not run.folder.is_symlink():
            yield _candidate(run, "duplicate", f"the same record as {kept.folder}")


def _preference(run: RunState) -> tuple[bool, bool, bool, float]:
    """Largest for the one of equal runs that stays: found by the same command, with a checkpoint, the newest."""
    place = run.folder.resolve().parent
    own = place.name.split("-")[0] == config_hash(run.config)
    return (
        own,
        place.parent.name == run.config.get("name"),
        (run.folder / CHECKPOINT).exists(),
        (run.folder / STATUS).stat().st_mtime,
    )


def _record(folder: Path) -> list[dict[str, Any]]:
    """The record without seconds; [] if it cannot be read."""
    try:
        return [comparable(line) for line in RunFiles(folder).lines()]
    except ValueError:
        return []


def _candidate(run: RunState, kind: str, reason: str) -> Candidate:
    size = sum(path.lstat().st_size for path in run.folder.rglob("*") if path.is_file())
    return Candidate(run.folder, kind, reason, size)


def _removed(one: Candidate) -> str | None:
    """Remove a run, and the folder of its config if it has no other seed. Returns one line if that fails."""
    try:
        with owned(one.folder), explained(one.folder):
            shutil.rmtree(one.folder)
        parent = one.folder.parent
        if {path.name for path in parent.iterdir()} <= {IDENTITY}:
            shutil.rmtree(parent)
    except (ValueError, OSError) as error:
        return str(error)
    return None
