"""The metrics of a trained model on a test set, by client and by class: as text, as tables and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcomp.display import units
from fedcomp.display.client_plot import plot_clients
from fedcomp.display.figure import can_draw
from fedcomp.evaluation.per_client import quantity
from fedcomp.records.atomic_write import explained, write_atomically
from fedcomp.reporting.tables.formats import csv_text


@dataclass(frozen=True)
class ModelEvaluation:
    """The metrics of a trained model on a test set.

    Attributes:
        name: of the test set. task: of its dataset.
        metrics: `test/...` and, if clients were judged, `per_client/...`.
        clients: [N'] numbers of the clients that were judged. values: [N'] accuracy (regression: loss) of each.
        classes: (name, test samples, accuracy) of each class that occurs; only where a sample has one class.
        repetitions: of a study, whose means `metrics` and `classes` are; `clients` and `values` are theirs one after
            another. () of a run.
    """

    name: str
    task: str
    metrics: dict[str, float]
    clients: np.ndarray
    values: np.ndarray
    classes: list[tuple[str, int, float]]
    repetitions: "tuple[ModelEvaluation, ...]" = ()

    @property
    def std(self) -> dict[str, float]:
        """Sample standard deviation over the repetitions of each metric; {} of a run."""
        each = self.repetitions
        return {name: _std([one.metrics[name] for one in each]) for name in self.metrics} if each else {}

    @property
    def num_judged(self) -> int:
        """Clients that were judged, in each repetition."""
        return len(self.repetitions[0].values if self.repetitions else self.values)

    @property
    def class_std(self) -> list[float]:
        """The same of each class's accuracy."""
        each = self.repetitions
        return [_std([one.classes[place][2] for one in each]) for place in range(len(self.classes))] if each else []


def mean_of(each: Sequence[ModelEvaluation]) -> ModelEvaluation:
    """The evaluation of a study from those of its repetitions, which have the same test set."""
    first = each[0]
    classes = [
        (name, num, float(np.mean([one.classes[place][2] for one in each])))
        for place, (name, num, _) in enumerate(first.classes)
    ]
    return replace(
        first,
        metrics={name: float(np.mean([one.metrics[name] for one in each])) for name in first.metrics},
        clients=np.concatenate([one.clients for one in each]),
        values=np.concatenate([one.values for one in each]),
        classes=classes,
        repetitions=tuple(each),
    )


def _std(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1))


def text_of(evaluation: ModelEvaluation) -> list[str]:
    """The report on the terminal, in lines."""
    quality, each, std = quantity(evaluation.task), evaluation.repetitions, evaluation.std
    percent = quality == "accuracy"
    test = [name for name in evaluation.metrics if name.startswith("test/")]
    shown = [
        f"{name.removeprefix('test/')} {_shown(evaluation.metrics[name], std.get(name), name == 'test/accuracy')}"
        for name in test
    ]
    lines = [f"{len(each)} repetitions: means and standard deviations over them"] if each else []
    lines.append(f"test set {evaluation.name}: {', '.join(shown)}")
    if len(evaluation.values):
        prefix = f"per_client/{quality}_"
        mean, worst, best = (
            _shown(evaluation.metrics[prefix + key], std.get(prefix + key), percent)
            for key in ("mean", "worst_decile", "best_decile")
        )
        deviation = (100 if percent else 1) * evaluation.metrics[f"{prefix}std"]
        unit = "percentage points" if percent else ""
        lines += [
            f"by client ({evaluation.num_judged} clients{' in each repetition' if each else ''}), {quality}: "
            f"mean {mean}, worst tenth {worst}, best tenth {best}",
            f"  standard deviation {deviation:.4g} {unit}, variance {deviation**2:.4g}",
        ]
    if evaluation.classes:
        width = max(len(name) for name, _, _ in evaluation.classes)
        stds: Sequence[float | None] = evaluation.class_std or [None] * len(evaluation.classes)
        rows = [(name, num, _shown(value, std, percent)) for (name, num, value), std in zip(evaluation.classes, stds)]
        lines += ["by class:", *(f"  {name:{width}} {num:7,} {text:>9}" for name, num, text in rows)]
    return lines


def _shown(value: float, std: float | None, percent: bool) -> str:
    if percent:
        return f"{100 * value:.2f}" + ("" if std is None else f" ± {100 * std:.2f}") + " %"
    return f"{value:.4g}" if std is None else units.mean_and_deviation(value, std)


def write(evaluation: ModelEvaluation, out: Path) -> None:
    """Write the tables and the picture to a folder. Raises ValueError: it cannot be written."""
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    for file, rows in _tables(evaluation).items():
        write_atomically(out / file, csv_text(rows).encode())
    if len(evaluation.values) and can_draw():
        _draw(evaluation, out / "clients.png")


def _tables(evaluation: ModelEvaluation) -> dict[str, list[Sequence[Any]]]:
    """{file: rows, the titles first}; of a study with standard deviations, and with the number of each repetition."""
    each, std = evaluation.repetitions, evaluation.std
    more, number = (["std"], ["repetition"]) if each else ([], [])
    metrics = ([name, value, *([std[name]] if each else [])] for name, value in evaluation.metrics.items())
    tables: dict[str, list[Sequence[Any]]] = {"metrics.csv": [["metric", "value", *more], *metrics]}
    if each:
        metrics_of_each = ([place, *one.metrics.values()] for place, one in enumerate(each))
        tables["repetitions.csv"] = [["repetition", *evaluation.metrics], *metrics_of_each]
    if len(evaluation.values):
        tables["clients.csv"] = [[*number, "client", quantity(evaluation.task)]]
        for place, one in enumerate(each or [evaluation]):
            pairs = zip(one.clients.tolist(), one.values.tolist())
            tables["clients.csv"] += [[*([place] if each else []), *pair] for pair in pairs]
    if evaluation.classes:
        stds = [[value] for value in evaluation.class_std] if each else [[]] * len(evaluation.classes)
        rows = ([*row, *value] for row, value in zip(evaluation.classes, stds))
        tables["classes.csv"] = [["class", "samples", "accuracy", *more], *rows]
    return tables


def _draw(evaluation: ModelEvaluation, path: Path) -> None:
    """The picture of the clients' values, and of the classes'."""
    quality, each = quantity(evaluation.task), evaluation.repetitions
    scale, axis = (100, "accuracy (%)") if quality == "accuracy" else (1, "loss")
    keys = {"mean": "mean", "worst tenth": "worst_decile", "best tenth": "best_decile"}
    marks = {words: scale * evaluation.metrics[f"per_client/{quality}_{key}"] for words, key in keys.items()}
    classes = [(label, scale * value) for label, _, value in evaluation.classes]
    title = f"{evaluation.name}, {evaluation.num_judged} clients"
    title += f" in each of {len(each)} repetitions" if each else ""
    plot_clients(scale * evaluation.values, path, axis, marks, classes, title)
