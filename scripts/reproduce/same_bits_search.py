"""Which learning rate and how many local steps each method of `same_bits` gets on a task, and the runs that follow."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean

from scripts.reproduce.experiment import Command, Experiment
from scripts.reproduce.records import Folder, Records, Run
from scripts.reproduce.same_bits_rows import LADDER, ROWS, SGD_LR, Row, with_base

COMMITTED = Folder(Path(__file__).resolve().parents[2] / "docs" / "results" / "records")
ACCURACY = "test/accuracy"
RATES = ("client.lr", "algorithm.lr", "algorithm.alpha")
STEPS = ("client.steps", "client.inner_steps", "algorithm.steps", "algorithm.p")
LOCAL_STEPS = (5, 20, 60)
MOST = 7
"""Rates that are tried for a number of local steps before the search gives up."""
NEAR_CHANCE = 0.1
"""A mean accuracy no further above chance says nothing about the method."""
TRIALS, SEEDS = ("10", "11"), ("0", "1", "2")


@dataclass(frozen=True)
class Task:
    """What is learnt.

    Attributes:
        name: its file in conf/experiment/neighbours/task. title: of its section. setting: a sentence about it.
        chance: accuracy of who always says the most frequent class. target: for "bits to", in percent.
        num_test: what is predicted of the test set: its samples or, of texts, its characters.
        classes: whether a sample has one.
        lr: a good rate of local SGD: where its search begins, and `client.lr` where another rate is searched.
    """

    name: str
    title: str
    setting: str
    chance: float
    target: int
    num_test: int
    classes: bool = True
    lr: float = SGD_LR

    @property
    def max_bits(self) -> float:
        """The limit of bits in both directions."""
        return float(with_base("task", self.name)["max_bits"])

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

    @property
    def rows(self) -> list[Row]:
        """The methods that can learn the task."""
        return [row for row in ROWS if self.task.classes or not row.by_class]

    def overrides(self, scale: str) -> Iterator[Command]:
        """Row by row: the trials of its rates and steps, then its runs."""
        return chain.from_iterable(self.sequences(scale))

    def sequences(self, scale: str) -> list[Iterator[Command]]:
        """A row's trials and runs are one."""
        return [self.commands_of(row) for row in self.rows] if scale == "paper" else []

    def commands_of(self, row: Row) -> Iterator[Command]:
        """What of a row is to be run: after each command the records must have its runs, or nothing follows."""
        given: list[Command] = []
        while (command := self.next_command(row)) and command not in given:
            given.append(command)
            yield command

    def planned(self) -> Iterator[Command]:
        """Of each row what comes next, and after trials the runs with the middle of their rates and steps."""
        for row in self.rows:
            if command := self.next_command(row):
                yield command
                if f"seed={','.join(TRIALS)}" in command:
                    yield self._runs(row, LOCAL_STEPS[1], row.first_rates(self.task.lr)[1])

    def _start(self, row: Row) -> Command:
        fixed = [f"client.lr={self.task.lr:g}"] if row.rate == "algorithm.alpha" else []
        return ["-m", *self.commands[0].split(), *row.words, *fixed]

    def _runs(self, row: Row, steps: int, rate: float) -> Command:
        return [*self._start(row), f"{row.rate}={rate:g}", f"{row.steps}={row.value(steps)}", f"seed={','.join(SEEDS)}"]

    def next_command(self, row: Row) -> Command:
        """What of a row is to be run next: trials, or with the best of them its runs; nothing: all is there."""
        runs, start = self.records(self).where(label=row.label), self._start(row)
        short = [f"seed={','.join(TRIALS)}", "rounds=40", f"max_bits={self.task.max_bits / 4:g}", "eval_every=40"]
        tried, first = scores(row, runs), row.first_rates(self.task.lr)
        if any((number, rate) not in tried for number in LOCAL_STEPS for rate in first):  # also if stopped
            rates = ",".join(f"{rate:g}" for rate in first)
            steps = ",".join(row.value(number) for number in LOCAL_STEPS)
            return [*start, f"{row.rate}={rates}", f"{row.steps}={steps}", *short]
        for number in LOCAL_STEPS:
            if rate := next_rate({one: score for (steps, one), score in tried.items() if steps == number}):
                return [*start, f"{row.rate}={rate:g}", f"{row.steps}={row.value(number)}", *short]
        best = chosen(row, runs, self.task)
        if best is None:
            return []
        ended = {run.about["seed"] for run in final(row, runs, *best) if run.about["state"] != "unfinished"}
        if ended == set(SEEDS):
            return []
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
