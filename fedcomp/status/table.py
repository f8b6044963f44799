"""The state of a grid as text: counts, one row for each method, one line for each run that ended too early."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from fedcomp.display import units
from fedcomp.records.reader import RunFiles
from fedcomp.reporting.group import result_options, used
from fedcomp.reporting.labels import distinct
from fedcomp.reporting.names import names, natural, setting_text
from fedcomp.status.runs import GOING, RunState, RunStates, State

if TYPE_CHECKING:
    from rich.console import RenderableType

ORDER: tuple[State, ...] = get_args(State)
STYLES = {"done": "green", "running": "cyan", "failed": "red", "killed": "red"}
STYLES |= dict.fromkeys(("interrupted", "preempted", "cancelled"), "yellow")
BAR = 20


@dataclass(frozen=True)
class StatusRow:
    """Runs of one config.

    Attributes:
        label: what sets it apart from others on the same setting. runs: one a seed.
        setting: dataset, model, partition, number of clients in words, where they vary.
    """

    label: str
    runs: tuple[RunState, ...]
    setting: str = ""

    @property
    def progress(self) -> float:
        """The share of rounds completed, over all runs; all of one that is done, be it early by `max_bits`."""
        return sum(1 if run.state == "done" else run.round / (run.rounds or 1) for run in self.runs) / len(self.runs)

    @property
    def best(self) -> float | None:
        """The mean over runs of each one's best test accuracy so far, a fraction."""
        values = [run.best for run in self.runs if run.best is not None]
        return sum(values) / len(values) if values else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last of the running runs ends."""
        return max((run.seconds_left for run in self.runs if run.seconds_left is not None), default=None)


def rows(runs: Sequence[RunState]) -> list[StatusRow]:
    """Runs by config. Its name is the keys in which it differs from others; a run not begun has its overrides."""
    groups: dict[Path, list[RunState]] = {}
    waiting: dict[str, list[RunState]] = {}
    for run in runs:
        folder = run.folder.resolve().parent
        if run.config:
            groups.setdefault(folder, []).append(run)
        elif folder in groups:  # a seed that has not begun, of a config that has
            groups[folder].append(run)
        else:
            words = [word for word in run.overrides.split() if not word.startswith("seed=")]
            waiting.setdefault(" ".join(words) or run.folder.parent.name, []).append(run)
    named = _named(list(groups.values()))
    ordered = sorted(named, key=lambda row: (natural(row.setting), natural(row.label)))
    return ordered + [StatusRow(label, tuple(own)) for label, own in waiting.items()]


def _named(groups: Sequence[Sequence[RunState]]) -> list[StatusRow]:
    """The runs of each config; configs that differ only in `name` show it in brackets."""
    flats = [used(result_options(own[0].config), RunFiles(own[0].folder)) for own in groups]
    given = [str(own[0].config.get("label") or "") for own in groups]
    keys = [json.dumps([label, flat], sort_keys=True, default=str) for label, flat in zip(given, flats)]
    flat_of, given_of = dict(zip(keys, flats)), dict(zip(keys, given))
    named = dict(zip(flat_of, names(list(flat_of.values()), list(given_of.values()))))
    times = Counter(keys)
    labels = [
        named[key][0] + (f" ({own[0].config.get('name')})" if times[key] > 1 else "") for key, own in zip(keys, groups)
    ]
    places = [setting_text(named[key][1]) for key in keys]
    return [StatusRow(label, tuple(own), place) for label, own, place in zip(distinct(labels, places), groups, places)]


def counts(runs: Sequence[RunState]) -> str:
    """`8 runs: 5 done, 2 running, 1 failed; 3 m 20 s left`."""
    of = Counter(run.state for run in runs)
    listed = ", ".join(f"{of[state]} {state}" for state in ORDER if of[state])
    left = max((run.seconds_left for run in runs if run.seconds_left is not None), default=None)
    more = f"; {units.duration(left)} left for those that run" if left is not None else ""
    return f"{units.counted(len(runs), 'run')}: {listed}{more}"


def render(found: RunStates, bars: bool) -> RenderableType:
    """Everything, for a terminal; `bars`: progress as a bar beside the numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    runs = found.runs
    table, listed = Table(box=SIMPLE_HEAD), rows(runs)
    settled = any(row.setting for row in listed)
    for title in (*(["setting"] if settled else []), "method", "seeds", "state", "progress", "best (%)", "left"):
        table.add_column(title, justify="right" if title in ("seeds", "best (%)", "left") else "left", overflow="fold")
    for row in listed:
        of = Counter(run.state for run in row.runs)
        state = Text(", ").join(Text(f"{of[one]} {one}", STYLES.get(one, "")) for one in ORDER if of[one])
        best, left = row.best, row.seconds_left
        table.add_row(
            *([escape(row.setting)] if settled else []),
            escape(row.label),
            _seeds(row.runs),
            state,
            _progress(row, bars),
            "–" if best is None else units.percent(best),
            "" if left is None else units.duration(left),
        )
    ended_early = (run for run in runs if run.state != "done" and run.state not in GOING)
    lines = [f"{run.state}: {run.folder}: {run.error or 'no error message'}" for run in ended_early]
    lines += [found.problem] if found.problem else []
    return Group(Text(counts(runs), style="bold"), table, *map(Text, lines))


def _progress(row: StatusRow, bars: bool) -> str:
    running = [run for run in row.runs if run.state == "running"]
    words = " ".join(f"{run.round}/{run.rounds}" for run in running[:3]) + (" …" if len(running) > 3 else "")
    if not running:
        words = f"{100 if row.progress == 1 else min(99, round(100 * row.progress))} %"
    filled = int(BAR * row.progress)
    return f"{'━' * filled}{'╌' * (BAR - filled)} {words}" if bars else words


def _seeds(runs: Sequence[RunState]) -> str:
    seeds = sorted(run.seed for run in runs if run.seed is not None)
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}–{seeds[-1]}"
    return ",".join(map(str, seeds))
