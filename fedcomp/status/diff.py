"""`fedcomp-diff RUN RUN`: what differs between two runs, in their settings, their origin and their results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcomp.core.folders import part_name
from fedcomp.core.validate import as_typed
from fedcomp.display import units
from fedcomp.display.metric import metric
from fedcomp.records.metrics_file import Line, comparable
from fedcomp.records.provenance import Provenance, differences
from fedcomp.records.reader import RunFiles
from fedcomp.records.run_folder import WITHOUT_EFFECT
from fedcomp.reporting.labels import flatten, within
from fedcomp.reporting.presets import with_preset
from fedcomp.runtime.command import command, exit_status

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = """\
examples:
  fedcomp-diff outputs/fedcomp/0a1b2c3d4e/seed=0 outputs/fedcomp/5f6a7b8c9d/seed=0

exit status: 0 no difference but in seconds and in where the runs lie, 1 some, 2 a wrong argument"""
ELSEWHERE = WITHOUT_EFFECT - {"seed"} | {"record_traffic", "codec_error"}
"""Keys of a config that change nothing computed or measured. They are shown, and do not change the exit status."""
MISSING = "–"


@dataclass(frozen=True)
class Difference:
    """One thing that differs. `one`, `other`: in words. `change`: from one to the other, in words."""

    name: str
    one: str
    other: str
    change: str = ""


@dataclass(frozen=True)
class RunDifferences:
    """What differs between two runs.

    Attributes:
        settings, origin, results: the differences. same_until: the last round up to which the records are equal apart
            from seconds; None: they differ from their first line on, or one is empty.
        equal_records: whether the whole records are.
    """

    settings: list[Difference]
    origin: list[Difference]
    results: list[Difference]
    same_until: int | None
    equal_records: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Compare and print. Returns the exit status."""
    parser = command(
        "fedcomp-diff", "What differs between two runs: in their settings, their origin and their results.", EXAMPLES
    )
    parser.add_argument("one", type=Path, metavar="RUN", help="a run's folder")
    parser.add_argument("other", type=Path, metavar="RUN", help="another")
    given = parser.parse_args(argv)
    return exit_status(lambda: _diff(given.one, given.other))


def _diff(one: Path, other: Path) -> int:
    found = compare(one, other)
    _show(found, one, other)
    real = [setting for setting in found.settings if not within(setting.name, ELSEWHERE)]
    return int(bool(real or found.origin or not found.equal_records))


def compare(one: Path, other: Path) -> RunDifferences:
    """Compare the runs in two folders. Raises ValueError: a folder holds no run, or cannot be read."""
    files = [RunFiles(folder) for folder in (one, other)]
    configs = [each.existing_config() for each in files]
    records = [each.lines() for each in files]
    return RunDifferences(
        list(_settings(_flat(configs[0]), _flat(configs[1]))),
        list(_origins(*[each.provenance() for each in files])),
        list(_results(files, records)),
        *_agreement(*records),
    )


def _flat(config: Mapping[str, Any]) -> dict[str, str]:
    """{key with dots: value in words}; a part by its name in conf/, such as `topk`, or `lte` for that network."""
    found = {}
    for key, value in with_preset(flatten(config)).items():
        part, _, last = key.rpartition(".")
        if last == "_target_":
            found[part] = part_name(value)
        elif last != "_partial_" and part not in ("launcher", "sweeper"):  # whose names tell enough
            found[key] = as_typed(value)
    return found


def _settings(one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[Difference]:
    for name in dict.fromkeys((*one, *other)):
        if one.get(name) != other.get(name):
            yield Difference(name, one.get(name, MISSING), other.get(name, MISSING))


def _origins(one: Provenance | None, other: Provenance | None) -> Iterator[Difference]:
    """Versions, commits, machine, data and code of the runs' last sessions."""
    if one is None or other is None:
        if one is not other:
            yield Difference("provenance.json", *(MISSING if kept is None else "there" for kept in (one, other)))
        return
    for what, mine, its in (("data", one.data, other.data), ("own code", one.code, other.code)):
        for difference in differences(mine, its):
            yield Difference(what, "", difference)
    sessions = [_session(kept) for kept in (one, other)]
    yield from _settings(*sessions)


def _session(kept: Provenance) -> dict[str, str]:
    if not kept.sessions:
        return {}
    last = kept.sessions[-1]
    place = {"host": last.host, "device": last.device, "processor": last.processor, "processes": str(last.processes)}
    versions = {f"version of {name}": version for name, version in last.versions.items()}
    commits = {
        f"commit of {Path(one.folder).name}": one.commit[:12] + ("" if one.clean else " and changes")
        for one in last.commits
    }
    return place | {"threads": str(last.threads)} | versions | commits


def _results(files: Sequence[RunFiles], records: Sequence[list[Line]]) -> Iterator[Difference]:
    """State, rounds and the metrics of the last round that both have evaluated."""
    states = [now.state if now is not None else MISSING for now in (each.status() for each in files)]
    last = [str(record[-1]["round"]) if record else "no record" for record in records]
    for name, pair in (("state", states), ("last evaluation, round", last)):
        if pair[0] != pair[1]:
            yield Difference(name, *pair)
    rounds = [{int(line["round"]): line for line in record} for record in records]
    common = sorted(rounds[0].keys() & rounds[1].keys())
    if not common:
        return
    mine, its = (each[common[-1]] for each in rounds)
    for name in dict.fromkeys((*mine, *its)):
        if mine.get(name) != its.get(name) and str(mine.get(name)) != str(its.get(name)):  # NaN is not equal to itself
            one, other = (_words(name, line[name]) if name in line else MISSING for line in (mine, its))
            yield Difference(f"{name}, round {common[-1]}", one, other, _change(name, mine.get(name), its.get(name)))


def _words(name: str, value: float) -> str:
    if name.startswith(("bits/", "paper/bits/")):
        return units.bits(value)
    if name.startswith(("bpp/", "paper/bpp/")):
        return units.significant(value)
    if name == "seconds":
        return units.duration(value)
    judged = metric(name)
    return f"{judged.show(value)} %" if judged.scale == 100 else f"{value:.6g}"


def _change(name: str, one: float | None, other: float | None) -> str:
    if one is None or other is None:
        return ""
    if metric(name).scale == 100:
        return f"{100 * (other - one):+.2f} points"
    return f"× {other / one:.4g}" if one and other / one > 0 else f"{other - one:+.4g}"


def _agreement(one: Sequence[Line], other: Sequence[Line]) -> tuple[int | None, bool]:
    """(last round up to which the records are equal apart from seconds, whether all of them is)."""
    equal = [comparable(mine) == comparable(its) for mine, its in zip(one, other)]
    shared = equal.index(False) if False in equal else len(equal)
    return int(one[shared - 1]["round"]) if shared else None, shared == len(one) == len(other)


def _show(found: RunDifferences, one: Path, other: Path) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)
    console.print(f"1: {one}\n2: {other}", markup=False)
    parts = (("settings", found.settings), ("origin", found.origin), ("results", found.results))
    for title, rows in parts:
        console.print(_table(title, rows) if rows else f"{title}: no difference")
    if found.equal_records:
        console.print("the records are equal, apart from seconds")
    elif found.same_until is not None:
        console.print(f"the records are equal up to round {found.same_until}, apart from seconds")


def _table(title: str, rows: Sequence[Difference]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    changed = any(row.change for row in rows)
    table = Table(box=SIMPLE_HEAD)
    for head in (title, "1", "2", *(["from 1 to 2"] if changed else [])):
        table.add_column(head, overflow="fold")
    for row in rows:
        texts = map(str, (row.name, row.one, row.other, *([row.change] if changed else [])))
        table.add_row(*map(escape, texts))
    return table
