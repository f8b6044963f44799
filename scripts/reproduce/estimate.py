"""How long experiments take: two rounds of each of their runs, and from the second the hours of all rounds.

Of lists of numbers on a command line (rates, local steps, seeds) a trial takes the middle one, of seeds 0. What was
measured is kept in a CSV file, a row for each run, so that a trial goes on where it stopped.
"""

import csv
import hashlib
import math
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path

from omegaconf import DictConfig

from fedcomp.config.compose import compose_with_hydra
from fedcomp.config.overrides import quote
from fedcomp.core.validate import reads_as_number
from fedcomp.records.reader import RecordedRun, read_runs
from scripts.reproduce.experiment import Cut, Ended, Experiment, run
from scripts.reproduce.records import Folder

FILE = "rounds.csv"
TWO_ROUNDS = ("rounds=2", "eval_every=1", "max_bits=null", "pictures=false", "seed=0")
COUNTED = ("seconds", "gradients", "bits/total")
FEW, MORE = 1, 5
"""Local steps of a cut trial, and of the run that says what a gradient costs."""


@dataclass(frozen=True)
class Measured:
    """One run of a trial.

    Attributes:
        trial: its command. run: its folder.
        seconds, bits: of a whole round with its evaluation. setup: seconds before and between the rounds.
        cores: how many were busy on average.
    """

    trial: str
    run: str
    seconds: float
    bits: float
    setup: float
    cores: float

    def hours(self, rounds: int, max_bits: float | None) -> float:
        """Of the whole run, which ends after `rounds` or once `max_bits` were sent."""
        last = rounds if max_bits is None else min(rounds, math.ceil(max_bits / self.bits))
        return (self.setup + last * self.seconds) / 3600


@dataclass(frozen=True)
class Part:
    """What a command needs of each run of its trial: so many runs of so many rounds, or until so many bits."""

    runs: int
    rounds: int
    max_bits: float | None


Planned = Mapping[tuple[str, ...], Sequence[Part]]
"""{the command of a trial: what the experiment's commands need of it}."""


def trials(experiment: Experiment, device: str) -> Planned:
    """The trials of an experiment's commands."""
    found: dict[tuple[str, ...], list[Part]] = {}
    for command in experiment.planned():
        given = _options(command)
        config, options = _whole(given)
        copies = 1
        for key, value in options.items():
            values = value.split(",")
            if len(values) > 1 and all(map(reads_as_number, values)):
                copies *= len(values)
                given[key] = values[len(values) // 2]
        fixed = dict(word.split("=") for word in TWO_ROUNDS) | ({} if device == "auto" else {"device": device})
        kept = {key: value for key, value in given.items() if key not in fixed}
        trial = ("-m", *(f"{key}={value}" for key, value in {**kept, **fixed}.items()))
        found.setdefault(trial, []).append(Part(copies, int(config.rounds), config.max_bits))
    return found


def _options(command: Iterable[str]) -> dict[str, str]:
    """{option: value} of a command."""
    return dict(word.partition("=")[::2] for word in command if word != "-m")


def _whole(given: Mapping[str, str]) -> tuple[DictConfig, dict[str, str]]:
    """The config of the first run of these options, and all options, with those that its experiment's grid has."""
    config = compose_with_hydra([quote(f"{key}={value.split(',')[0]}") for key, value in given.items()], [])
    swept = {key: str(value) for key, value in (config.hydra.sweeper.params or {}).items()}
    return config, {**swept, **given}


def measure(experiment: Experiment, planned: Iterable[tuple[str, ...]], cut: bool, place: Path) -> None:
    """Run the trials of an experiment that are not kept in `place`; a trial of which nothing runs leaves no row."""
    kept = {one.trial for one in read(place)}
    for trial in planned:
        if " ".join(trial) in kept:
            continue
        experiment.prepare()
        less = experiment.cut if cut else None
        runs, setup, cores = _run(experiment, trial if less is None else [*trial, *less.steps(FEW)], place)
        gradient = 0.0 if less is None or not runs else _gradient(experiment, less, trial, runs, place)
        if gradient is None:
            continue
        for one in runs:
            seconds, gradients, bits = _second_round(one)
            seconds += 0.0 if less is None else gradient * (less.gradients - gradients)
            _keep(place, Measured(" ".join(trial), one.folder.parent.name, seconds, bits, setup / len(runs), cores))


def _gradient(
    experiment: Experiment, cut: Cut, trial: Sequence[str], runs: Sequence[RecordedRun], place: Path
) -> float | None:
    """Seconds of a sample's gradient: the first method's second round with more local steps, beside that in `runs`.

    None: with more steps it does not run.
    """
    _, options = _whole(_options(trial))
    one_of_each = [f"{key}={value.split(',')[0]}" for key, value in options.items()]
    again, _, _ = _run(experiment, ["-m", *one_of_each, *cut.steps(MORE)], place)
    if not again:
        return None
    same = next(one for one in runs if one.config["label"] == again[0].config["label"])
    (few, fewer, _), (more, greater, _) = map(_second_round, (same, again[0]))
    return max(0.0, more - few) / (greater - fewer)


def _run(experiment: Experiment, words: Sequence[str], place: Path) -> tuple[list[RecordedRun], float, float]:
    """The runs of two rounds that a command made, the seconds between their rounds, the cores that were busy."""
    root = place / "runs" / hashlib.blake2b(" ".join(words).encode(), digest_size=4).hexdigest()
    began, before = time.monotonic(), _processor_seconds()
    ended = run([*words, f"output_root={root}"], math.inf)
    if ended is Ended.STOPPED:
        raise KeyboardInterrupt
    wall, used = time.monotonic() - began, _processor_seconds() - before
    folder = root / experiment.name
    try:
        runs = [one for one in read_runs([folder]) if len(one.lines) == 3]
    except ValueError:  # nothing has begun
        return [], 0.0, 0.0
    Folder(place / "records").update(experiment, folder)
    return runs, max(0.0, wall - sum(one.lines[-1]["seconds"] - one.lines[0]["seconds"] for one in runs)), used / wall


def _second_round(recorded: RecordedRun) -> tuple[float, float, float]:
    """Its seconds, gradients and bits in both directions."""
    one, two = ({name: float(line.get(name, 0)) for name in COUNTED} for line in recorded.lines[1:])
    seconds, gradients, bits = (two[name] - one[name] for name in COUNTED)
    return seconds, gradients, bits


def table(experiments: Iterable[tuple[str, Experiment, Planned]], place: Path) -> str:
    """A Markdown table: of each experiment its runs and hours, by what is kept of their trials; then the sum."""
    kept = {trial: list(rows) for trial, rows in groupby(read(place), lambda one: one.trial)}
    lines = ["| page | experiment | runs | hours | core hours |", "| --- | --- | ---: | ---: | ---: |"]
    total = [0.0, 0.0, 0.0]
    for name, experiment, planned in experiments:
        own = _sums(planned, kept)
        if own is not None:
            total = [sum(pair) for pair in zip(total, own, strict=True)]
        cells = ["", "not tried", ""] if own is None else [f"{own[0]:,.0f}", f"{own[1]:.2f}", f"{own[2]:.2f}"]
        lines.append(f"| {name} | {experiment.name} | {' | '.join(cells)} |")
    lines.append(f"| all | | {total[0]:,.0f} | {total[1]:.1f} | {total[2]:.1f} |")
    return "\n".join(lines)


def _sums(planned: Planned, kept: Mapping[str, Sequence[Measured]]) -> tuple[float, float, float] | None:
    """(runs, hours, core hours); None where a trial is missing."""
    runs = hours = core_hours = 0.0
    for trial, parts in planned.items():
        rows = kept.get(" ".join(trial))
        if rows is None:
            return None
        for part in parts:
            runs += part.runs * len(rows)
            each = [(one.hours(part.rounds, part.max_bits), one.cores) for one in rows]
            hours += part.runs * sum(one for one, _ in each)
            core_hours += part.runs * sum(one * cores for one, cores in each)
    return runs, hours, core_hours


def read(place: Path) -> Iterator[Measured]:
    """What is kept."""
    if (place / FILE).exists():
        with (place / FILE).open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                numbers = {name: float(row[name]) for name in row.keys() - {"trial", "run"}}
                yield Measured(row["trial"], row["run"], **numbers)


def _keep(place: Path, row: Measured) -> None:
    new = not (place / FILE).exists()
    place.mkdir(parents=True, exist_ok=True)
    with (place / FILE).open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [one.name for one in fields(Measured)])
        if new:
            writer.writeheader()
        writer.writerow(asdict(row))


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
