"""What a reader must know beside the table: runs that are not in it and why, values that are no numbers, gaps."""

import json
import math
from collections.abc import Iterable, Sequence

from fedcomp.display.metric import ACCURACY, Metric, metric
from fedcomp.records.metrics_file import FILE as RECORD
from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.group import RunGroup, by_setting, result_options
from fedcomp.reporting.metrics import recorded

MOST_NAMED = 4
"""Names of a list that a line has."""


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
        if ACCURACY in last:
            parts.append(metric(ACCURACY).text(last[ACCURACY]))
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
