"""What a page is made of: two CSV files for each experiment, small enough to be committed.

`<name>.runs.csv` has a row for each run: label, seed, options, how far it went, on which processor, from which commit.
`<name>.csv` has a row for each evaluation. Both name a run by `run`, its folder: `<hash>/seed=<n>`.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedcomp.core.folders import part_name
from fedcomp.records.atomic_write import write_atomically
from fedcomp.records.provenance import Commit
from fedcomp.records.reader import RecordedRun, read_runs
from fedcomp.reporting.group import group
from fedcomp.reporting.labels import flatten, show_value
from fedcomp.simulation.divergence import has_diverged
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.history import CHANGED

ABOUT = ("run", "label", "seed", "state", "rounds", "of_rounds", "seconds", "processor", "versions", "commit")


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        about: the values of ABOUT, and of the experiment's options.
        lines: its evaluations, {"round": 10, "test/accuracy": 0.9}; without what a line does not have.
        diverged: of a run just read, whether it failed because its values became infinite or NaN.
    """

    about: Mapping[str, str]
    lines: Sequence[Mapping[str, float]]
    diverged: bool = False

    def at(self, round_index: int, metric: str) -> float | None:
        """The metric after so many rounds; None: not recorded."""
        return next((line.get(metric) for line in self.lines if line["round"] == round_index), None)

    def last(self, metric: str) -> float | None:
        """The metric at the last evaluation."""
        return self.lines[-1].get(metric) if self.lines else None

    def best(self, metric: str, limit: float = math.inf) -> float | None:
        """The largest value of the metric over the first `limit` rounds."""
        return max((line[metric] for line in self.lines if metric in line and line["round"] <= limit), default=None)

    @property
    def rounds(self) -> int:
        """How many are done."""
        return int(self.about["rounds"])

    def replaces(self, old: "Run") -> bool:
        """Whether it takes the place of the same run's record: it went as far, or failed.

        A record that is finished is replaced by a failure only if that is the method's, as a full disk is not.
        """
        failed = self.about["state"] == "failed"
        if failed and old.about["state"] == "finished":
            return self.diverged
        return failed or self.rounds >= old.rounds


@dataclass(frozen=True)
class Records:
    """Runs of one experiment, or some of them.

    Attributes:
        options: names of the experiment's options.
        metrics: names of what the lines hold.
    """

    runs: Sequence[Run] = ()
    options: Sequence[str] = ()
    metrics: Sequence[str] = ()

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def where(self, **wanted: str) -> "Records":
        """The runs whose columns have these values; the dots of a name are written `__`."""
        columns = {name.replace("__", "."): value for name, value in wanted.items()}
        return replace(
            self, runs=[run for run in self if all(run.about[name] == value for name, value in columns.items())]
        )

    def values(self, column: str) -> list[str]:
        """The distinct values of a column, in the order of the runs."""
        return list(dict.fromkeys(run.about[column] for run in self))

    def collect(self, value: Callable[[Run], float | None]) -> list[float]:
        """The value of each run that has one."""
        return [found for run in self if (found := value(run)) is not None and not math.isnan(found)]


@dataclass(frozen=True)
class Folder:
    """A folder with records of several experiments.

    Attributes:
        path: docs/results/records, or that of a run at small scale.
    """

    path: Path

    def __getitem__(self, experiment: Experiment) -> Records:
        """The records of an experiment; empty where there are none."""
        about, lines = self.path / f"{experiment.name}.runs.csv", self.path / f"{experiment.name}.csv"
        if not about.exists():
            return Records(options=experiment.options, metrics=experiment.metrics)
        found: dict[str, list[dict[str, float]]] = {}
        for row in csv.DictReader(io.StringIO(lines.read_text(encoding="utf-8"))):
            numbers = {name: float(value) for name, value in row.items() if name != "run" and value}
            found.setdefault(row["run"], []).append(numbers)
        rows = csv.DictReader(io.StringIO(about.read_text(encoding="utf-8")))
        runs = [Run(row, found.get(row["run"], [])) for row in rows]
        return Records(runs, experiment.options, experiment.metrics)

    def update(self, experiment: Experiment, outputs: Path) -> None:
        """Take over the runs in `outputs` that are not yet here, or replace the ones here."""
        known = {run.about["run"]: run for run in self[experiment]}
        for run in _read_outputs(experiment, outputs):
            name = run.about["run"]
            if name not in known or run.replaces(known[name]):
                known[name] = run
        if known:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write(experiment, sorted(known.values(), key=_order))

    def _write(self, experiment: Experiment, runs: Sequence[Run]) -> None:
        about = [[run.about[name] for name in (*ABOUT, *experiment.options)] for run in runs]
        lines = [
            [run.about["run"], *(_text(line.get(name)) for name in ("round", *experiment.metrics))]
            for run in runs
            for line in run.lines
        ]
        head = ("run", "round", *experiment.metrics)
        write_atomically(self.path / f"{experiment.name}.runs.csv", _csv((*ABOUT, *experiment.options), about))
        write_atomically(self.path / f"{experiment.name}.csv", _csv(head, lines))


def _read_outputs(experiment: Experiment, outputs: Path) -> list[Run]:
    """The runs below a folder that have evaluated a round or failed, as those that diverge do."""
    if not outputs.is_dir():
        return []
    try:
        found = read_runs([outputs])
    except ValueError:  # nothing has begun
        return []
    begun = [one for one in found if one.config and one.lines and (one.lines[-1]["round"] > 0 or one.state == "failed")]
    labels = {
        member.folder: one.label
        for one in group([replace(run, state="finished") for run in begun])
        for member in one.runs
    }
    return [_run(experiment, one, labels.get(one.folder, "")) for one in begun]


def _run(experiment: Experiment, recorded: RecordedRun, label: str) -> Run:
    flat = flatten(recorded.config)
    provenance = recorded.files.provenance()
    session = provenance.sessions[-1] if provenance is not None and provenance.sessions else None
    lines = [
        {name: float(line[name]) for name in ("round", *experiment.metrics) if name in line}
        for line in experiment.lines_of(recorded)
    ]
    about = {
        "run": f"{recorded.folder.parent.name}/{recorded.folder.name}",
        "label": str(recorded.config.get("label") or label),
        "seed": str(recorded.seed),
        "state": recorded.state if recorded.state in ("finished", "failed") else "unfinished",
        "rounds": str(int(lines[-1]["round"])),
        "of_rounds": str(recorded.config["rounds"]),
        "seconds": f"{recorded.lines[-1].get('seconds', math.nan):.0f}",
        "processor": _processor(session.processor if session else "", str(recorded.config.get("precision", "fp32"))),
        "versions": f"torch {session.versions.get('torch', '')}" if session else "",
        "commit": _commit(session.commits) if session else "",
        **{option: _option(flat, option) for option in experiment.options},
    }
    return Run(about, lines, has_diverged(recorded.error or ""))


def _processor(name: str, precision: str) -> str:
    """With the precision of the run's products where that is not fp32."""
    return name if precision == "fp32" else f"{name}, {precision}"


def _commit(found: Sequence[Commit]) -> str:
    """That of fedcomp's own files, marked where they differed from it; empty outside a git checkout."""
    return next((one.commit[:10] + ("" if one.clean else CHANGED) for one in found), "")


def _option(flat: Mapping[str, Any], key: str) -> str:
    """A config's value: of a group, the name of its choice."""
    target = flat.get(f"{key}._target_")
    return part_name(target) if target is not None else show_value(flat.get(key, ""))


def _order(run: Run) -> tuple[Any, ...]:
    return run.about["label"], [value for name, value in run.about.items() if name not in ABOUT], int(run.about["seed"])


def _text(number: float | None) -> str:
    if number is None:
        return ""
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else f"{number:.6g}"


def _csv(head: Iterable[str], rows: Iterable[Iterable[str]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue().encode()
