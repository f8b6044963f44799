"""`fedcomp-evaluate RUN`: a run's trained model on another test set, by client and by class."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from omegaconf import OmegaConf

from fedcomp.api.evaluation_report import ModelEvaluation, mean_of, text_of, write
from fedcomp.api.trained_model import (
    TRUST_CODE,
    TrainedRun,
    parsed,
    places,
    recorded_config,
    trained_repetitions,
    unfinished,
)
from fedcomp.config.compose import compose, find_own_code
from fedcomp.config.instantiate import build, check_keys
from fedcomp.dataset.check import check as check_dataset
from fedcomp.dataset.contract import Dataset
from fedcomp.display.figure import can_draw
from fedcomp.evaluation.per_client import ClientSamples, PerClient, fairness, scores
from fedcomp.model.contract import Model
from fedcomp.model.lora.moved import moved
from fedcomp.runtime.command import command, exit_status
from fedcomp.simulation.evaluation import BATCH, client_values, metrics_of

EXAMPLES = """\
examples:
  fedcomp-evaluate outputs/fedcomp/0a1b2c3d4e/seed=0                        its own test set, by client and by class
  fedcomp-evaluate outputs/fedcomp/0a1b2c3d4e/seed=0 --clients train        every client's own training samples
  fedcomp-evaluate outputs/fedcomp/0a1b2c3d4e/seed=0 dataset=fashion_mnist  another test set of the same form
  fedcomp-evaluate outputs/fedcomp/0a1b2c3d4e/seed=0 dataset.root=/data     where the data of the run lie by now

Of a study (repeats=R) every repetition is evaluated: figures are means over them with their standard deviation, and
tables and histogram have the clients of all.
A client's test samples are those of its owner where the data say so (as in partition=natural), else the test set with
the classes in the proportions of the client's training samples. Inputs are normalised as in training.
DIR (default: RUN/evaluation/NAME) gets metrics.csv, clients.csv, classes.csv and clients.png; of a study also
repetitions.csv.
exit status: 0 done, 2 a wrong argument (one line on standard error)"""

Note = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, evaluate, print, write."""
    parser = command("fedcomp-evaluate", __doc__, EXAMPLES)
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("words", nargs="*", default=[], metavar="dataset=NAME | dataset.OPTION=VALUE")
    parser.add_argument("--clients", choices=("test", "train"), help="whose samples judge a client; default: test")
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="more configs and Python files, your own")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for tables and the picture")
    parser.add_argument("--trust-code", action="store_true", help=TRUST_CODE)
    given = parser.parse_intermixed_args(arguments)

    def note(line: str) -> None:
        print(f"fedcomp-evaluate: {line}", file=sys.stderr)

    def show() -> None:
        found = evaluate(given.run, given.words, given.clients, given.config_dir, note, given.trust_code)
        out = given.out or given.run / "evaluation" / (found.name + ("-train" if given.clients == "train" else ""))
        print("\n".join(text_of(found)), flush=True)  # first: the folder may be read-only
        write(found, out)
        print(f"tables {'and picture ' if len(found.values) and can_draw() else ''}in {out}")

    return exit_status(show)


def evaluate(
    folder: Path,
    words: Sequence[str] = (),
    clients: Literal["test", "train"] | None = None,
    config_dir: Path | None = None,
    note: Note = print,
    trust_code: bool = False,
) -> ModelEvaluation:
    """The metrics of a run's trained model on its test set or on another.

    Args:
        folder: of the run. words: overrides of `dataset`, which make another test set; those that only say where data
            lie (`dataset.root`, of a file that is not there any more `dataset.path`) are for the run's own data too.
        clients: as `evaluation.data`; None: test samples if the data tell whose they are, else no figures by client.
        config_dir: of one's own configs. note: receives remarks of one line.
        trust_code: call what the run's config names, also if it is not fedcomp's.
    Raises:
        ValueError: the config names code that is not trusted, the run has no model, or the test set has another form
            than the run's.
    """
    wrong = [word for word in words if not word.startswith(("dataset=", "dataset.")) or "=" not in word]
    if wrong:
        raise ValueError(f"{wrong[0]} is no override of the data: give dataset=NAME or dataset.OPTION=VALUE")
    named = any(word.startswith("dataset=") for word in words)
    changes = {} if named else places(folder, words, trust_code)
    others = [word for word in words if word.partition("=")[0] not in changes]
    if clients == "train" and others:
        raise ValueError(f"--clients train judges by the run's own training samples: leave {' '.join(others)} out")
    find_own_code(config_dir)
    every = trained_repetitions(folder, changes, trust_code)
    other = _other_dataset(folder, words, named, config_dir, trust_code) if others else None
    found: list[ModelEvaluation] = []
    for run in every:
        own = run.simulation.dataset
        test = own if other is None else _other_test(own, other)
        if not found and (remark := unfinished(folder, run.round)) is not None:
            note(remark)
        found.append(_evaluation(run, test, clients, note if not found else lambda _: None))
    return found[0] if len(found) == 1 else mean_of(found)


def _evaluation(run: TrainedRun, test: Dataset, clients: str | None, note: Note) -> ModelEvaluation:
    metrics = metrics_of({"test": run.models}, run.network, test, run.simulation.workers)
    judged = _judged(run, test, clients, note)
    values = torch.zeros(0, dtype=torch.float64)
    if judged is not None:
        values = client_values(run.models, run.network, test, judged, run.simulation.workers)
        metrics |= fairness(test.task, values)
    found = {name: float(value) for name, value in metrics.items()}
    numbers = np.zeros(0, np.int64) if judged is None else judged.clients
    return ModelEvaluation(test.name, test.task, found, numbers, values.numpy(), _by_class(run, test))


def _other_dataset(
    folder: Path, words: Sequence[str], named: bool, config_dir: Path | None, trust_code: bool
) -> Dataset:
    """The dataset that the overrides choose, or the run's own with other options."""
    if named:
        config = compose(words, config_dir)
    else:
        config = recorded_config(folder, trust_code)
        for key, value in map(parsed, words):
            OmegaConf.update(config, key, value, force_add=True)
    check_keys(config)
    dataset: Dataset = build(config.dataset)
    check_dataset(dataset)
    return dataset


def _other_test(own: Dataset, other: Dataset) -> Dataset:
    """The run's dataset with another's test samples. Raises ValueError: they have another form."""
    for what, mine, its in (
        ("task", own.task, other.task),
        ("sample's shape", own.input_shape, other.input_shape),
        ("number of outputs", own.num_outputs, other.num_outputs),
        ("target's shape", own.target_shape, other.target_shape),
        ("type of inputs", own.test.x.dtype, other.test.x.dtype),
        ("vocabulary", own.vocab_size, other.vocab_size),
        ("padding", own.padding_token, other.padding_token),
    ):
        if mine != its:
            raise ValueError(f"dataset={other.name} does not fit the run's model: its {what} is {its}, not {mine}")
    return replace(own, name=other.name, test=replace(other.test, owner=None), class_names=other.class_names)


def _judged(run: TrainedRun, test: Dataset, clients: str | None, note: Note) -> ClientSamples | None:
    shards = run.simulation.shards
    try:
        return PerClient("train" if clients == "train" else "test").samples(test, shards.order, shards.sizes)
    except ValueError as error:
        if clients is not None:
            raise
        note(f"no figures by client: {error} (here --clients train)")
        return None


def _by_class(run: TrainedRun, test: Dataset) -> list[tuple[str, int, float]]:
    """(name, samples, accuracy) of each class of the test set, a mean over the run's models."""
    if test.task != "classification" or test.test.y.dim() > 1:
        return []
    y, model = test.test.y, cast(Model, moved(run.network, run.models.change))
    right = torch.zeros(len(y), dtype=torch.float64)
    with torch.no_grad():
        for theta, stats in zip(run.models.theta, run.models.stats):
            outputs = (model.outputs(theta, stats, x) for x in test.inputs(test.test, BATCH))
            found = torch.cat([scores(test.judged_by, one, part) for one, part in zip(outputs, y.split(BATCH))])
            right += found / len(run.models.theta)
    names = test.class_names or tuple(map(str, range(test.num_outputs)))
    rows = ((name, right[y == label]) for label, name in enumerate(names))
    return [(name, len(own), float(own.mean())) for name, own in rows if len(own)]
