"""Which learning rate and how many local steps each method of `same_bits` gets on a task, and the runs that follow."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from fedcomp.core.choices import FAST_LOADER
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.records import Folder, Records, Run

CONF = Path(__file__).resolve().parents[2] / "conf"
NEIGHBOURS = CONF / "experiment" / "neighbours"
COMMITTED = Folder(CONF.parent / "docs" / "results" / "records")
GROUP = "experiment/neighbours"
ACCURACY = "test/accuracy"
RATES = ("client.lr", "algorithm.lr", "algorithm.alpha")
STEPS = ("client.steps", "client.inner_steps", "algorithm.steps", "algorithm.p")
LOCAL_STEPS = (5, 20, 60)
LADDER = tuple(float(f"{digit}e{power}") for power in range(-5, 2) for digit in (1, 3))
"""Rates that are tried: a factor of about 3 apart."""
MOST = 7
"""Rates that are tried for a number of local steps before the search gives up."""
NEAR_CHANCE = 0.1
"""A mean accuracy no further above chance says nothing about the method."""
TRIALS, SEEDS = ("10", "11"), ("0", "1", "2")


@dataclass(frozen=True)
class Row:
    """A method.

    Attributes:
        method: its file in conf/experiment/neighbours/method.
        rate, steps: its options for the learning rate, and for local steps (`algorithm.p`: one over their mean number).
        middle: of the first three rates; None: the one in its file.
    """

    method: str
    rate: str = "client.lr"
    steps: str = "client.steps"
    middle: float | None = None

    @property
    def label(self) -> str:
        """Its name in tables."""
        return str(method_file(self.method)["label"])

    @property
    def first_rates(self) -> tuple[float, ...]:
        """Three, a factor of about 3 apart."""
        group, name = self.rate.split(".")
        middle = method_file(self.method)[group][name] if self.middle is None else self.middle
        at = LADDER.index(float(middle))
        return LADDER[at - 1 : at + 2]

    def value(self, steps: int) -> str:
        """Of the option for local steps."""
        return f"{1 / steps:.3g}" if self.steps == "algorithm.p" else str(steps)

    @property
    def weights(self) -> str:
        """The override that makes clients count alike, where by default they count by their samples."""
        return "algorithm.weights=uniform" if _algorithm(self.method).get("weights") == "samples" else ""


ROWS = (
    *(Row(name) for name in ("fedavg", "fedavg_16", "topk", "sparseloco", "scallion", "eden", "doublesqueeze")),
    *(Row(name) for name in ("powersgd", "ef21", "gr", "fedscalar", "deltamask", "diloco")),
    *(Row(name, "algorithm.alpha", middle=0.1) for name in ("fedmrn", "fedmrn_16")),
    *(Row(name) for name in ("fedbat", "fedbat_16", "cafe", "turboquant", "fetchsgd", "fedmud", "scaffold")),
    *(Row(name) for name in ("randk_spatial", "randk_spatial_16", "rand_proj_spatial", "rand_proj_spatial_16")),
    *(Row(name, steps="client.inner_steps") for name in ("svrg", "svrg_16")),
    Row("tamuna", steps="algorithm.p"),
    *(Row(name, "algorithm.lr", "algorithm.steps") for name in ("decomfl", "fedkseed")),
    Row("feddistill"),
)


@dataclass(frozen=True)
class Task:
    """What is learnt.

    Attributes:
        name: its file in conf/experiment/neighbours/task. title: of its section. setting: a sentence about it.
        chance: accuracy of who always says the most frequent class. target: for "bits to", in percent.
        num_test: samples of the test set.
    """

    name: str
    title: str
    setting: str
    chance: float
    target: int
    num_test: int

    @property
    def max_bits(self) -> float:
        """The limit of bits in both directions."""
        return float(_with_base("task", self.name)["max_bits"])

    def near_chance(self, accuracy: float) -> bool:
        """Whether a mean accuracy is."""
        return accuracy < self.chance + NEAR_CHANCE


@dataclass(frozen=True)
class Search(Experiment):
    """Runs of a task; which come next follows from the records of those before.

    Attributes:
        task: what is learnt. records: those to go on from.
    """

    task: Task = field(kw_only=True)
    records: "Callable[[Search], Records]" = field(default=lambda search: COMMITTED[search], kw_only=True)

    def overrides(self, scale: str) -> Iterator[list[str]]:  # type: ignore[override]
        """Row by row: the trials of its rates and steps, then its runs."""
        if scale != "paper":
            return
        for row in ROWS:
            given: set[str] = set()
            while (command := self.next_command(row)) and command not in given:
                given.add(command)
                yield command.split()

    def planned(self) -> Iterator[list[str]]:
        """Of each row what comes next, and after trials the runs with the middle of their rates and steps."""
        for row in ROWS:
            if command := self.next_command(row):
                yield command.split()
                if f"seed={','.join(TRIALS)}" in command:
                    yield self._runs(row, LOCAL_STEPS[1], row.first_rates[1]).split()

    def _start(self, row: Row) -> str:
        return f"-m {self.commands[0]} {GROUP}/method@_global_={row.method} {row.weights}"

    def _runs(self, row: Row, steps: int, rate: float) -> str:
        return f"{self._start(row)} {row.rate}={rate:g} {row.steps}={row.value(steps)} seed={','.join(SEEDS)}"

    def next_command(self, row: Row) -> str:
        """What of a row is to be run next: trials, or with the best of them its runs; nothing: all is there."""
        runs, start = self.records(self).where(label=row.label), self._start(row)
        short = f"seed={','.join(TRIALS)} rounds=40 max_bits={self.task.max_bits / 4:g} eval_every=40"
        tried = scores(row, runs)
        if not tried:
            rates = ",".join(f"{rate:g}" for rate in row.first_rates)
            steps = ",".join(row.value(number) for number in LOCAL_STEPS)
            return f"{start} {row.rate}={rates} {row.steps}={steps} {short}"
        for number in LOCAL_STEPS:
            if rate := next_rate({one: score for (steps, one), score in tried.items() if steps == number}):
                return f"{start} {row.rate}={rate:g} {row.steps}={row.value(number)} {short}"
        best = chosen(row, runs, self.task)
        if best is None or {run.about["seed"] for run in final(row, runs, *best)} == set(SEEDS):
            return ""
        return self._runs(row, *best)


def trials(row: Row, runs: Records) -> dict[tuple[int, float], float | None]:
    """{(local steps, rate): mean accuracy at the trials' end; None where one diverged}, where both trials are over."""
    found: dict[tuple[int, float], list[Run]] = {}
    for run in runs:
        if run.about["seed"] in TRIALS and run.about["state"] != "unfinished":
            found.setdefault(_setting(row, run), []).append(run)
    return {
        setting: None if any(run.about["state"] == "failed" for run in own) else fmean(map(last_accuracy, own))
        for setting, own in found.items()
        if {run.about["seed"] for run in own} == set(TRIALS)
    }


def scores(row: Row, runs: Records) -> dict[tuple[int, float], float | None]:
    """As `trials`, with None also where a run after the search diverged: the search goes on without that setting."""
    found = trials(row, runs)
    diverged = {_setting(row, run) for run in runs.where(state="failed") if run.about["seed"] in SEEDS}
    return {setting: None if setting in diverged else score for setting, score in found.items()}


def next_rate(tried: Mapping[float, float | None]) -> float | None:
    """The rate beyond the edge of those tried where the best is; None: the best has one on both sides, or `MOST`."""
    if not tried or len(tried) >= MOST:
        return None
    best = max(sorted(tried), key=lambda rate: _or_least(tried[rate]))
    at = [min(range(len(LADDER)), key=lambda i: abs(LADDER[i] - rate)) for rate in (min(tried), max(tried))]
    if best == min(tried) and at[0] > 0:
        return LADDER[at[0] - 1]
    return LADDER[at[1] + 1] if best == max(tried) and at[1] + 1 < len(LADDER) else None


def chosen(row: Row, runs: Records, task: Task) -> tuple[int, float] | None:
    """(local steps, rate) with the best trials.

    Not one with which a run diverged, one at the edge of those tried, or one whose trials are near chance: then None.
    """
    found = scores(row, runs)
    best = max(found, key=lambda setting: _or_least(found[setting]), default=None)
    if best is None or task.near_chance(_or_least(found[best])):
        return None
    rates = [rate for steps, rate in found if steps == best[0]]
    return best if min(rates) < best[1] < max(rates) else None


def final(row: Row, runs: Records, steps: int, rate: float) -> Sequence[Run]:
    """The runs after the search, with its choice."""
    return [run for run in runs if run.about["seed"] in SEEDS and _setting(row, run) == (steps, rate)]


def last_accuracy(run: Run) -> float:
    """Of the last round; 0 without one."""
    return run.last(ACCURACY) or 0.0


def _setting(row: Row, run: Run) -> tuple[int, float]:
    value = float(run.about[row.steps])
    return round(1 / value) if row.steps == "algorithm.p" else round(value), float(run.about[row.rate])


def _or_least(score: float | None) -> float:
    return -1.0 if score is None else score


def method_file(name: str) -> dict[str, Any]:
    """A method's file with what it begins with."""
    return _with_base("method", name)


def _with_base(folder: str, name: str) -> dict[str, Any]:
    """A file of a group with the file of the group that it begins with."""
    own = _yaml(NEIGHBOURS / folder / f"{name}.yaml")
    base = own["defaults"][0]
    if not isinstance(base, str):
        return own
    found = _with_base(folder, base)
    merged = {key: {**found[key], **own[key]} for key in found.keys() & own.keys() if isinstance(own[key], dict)}
    return found | own | merged


def _algorithm(name: str) -> dict[str, Any]:
    """The file of a method's algorithm."""
    own = _yaml(NEIGHBOURS / "method" / f"{name}.yaml")
    choices = [one["override /algorithm"] for one in own["defaults"] if "override /algorithm" in one]
    if not choices:
        return _algorithm(own["defaults"][0])
    (choice,) = choices
    return _yaml(CONF / "algorithm" / f"{choice}.yaml")


@functools.cache
def _yaml(path: Path) -> dict[str, Any]:
    """What a file says, not to be changed."""
    return dict(yaml.load(path.read_text(encoding="utf-8"), Loader=FAST_LOADER))
