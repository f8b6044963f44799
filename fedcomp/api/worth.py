"""What a trained model is worth on some test samples: as text, as tables and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcomp.display.client_plot import plot_clients
from fedcomp.display.figure import can_draw
from fedcomp.evaluation.per_client import quantity
from fedcomp.records.atomic_write import explained, write_atomically


@dataclass(frozen=True)
class Worth:
    """What a trained model is worth on some test samples.

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
    repetitions: tuple[Worth, ...] = ()

    @property
    def std(self) -> dict[str, float]:
        """Sample standard deviation over the repetitions of each metric; {} of a run."""
        each = self.repetitions
        return {name: _std([one.metrics[name] for one in each]) for name in self.metrics} if each else {}

    @property
    def class_std(self) -> list[float]:
        """The same of each class's accuracy."""
        each = self.repetitions
        return [_std([one.classes[place][2] for one in each]) for place in range(len(self.classes))] if each else []


def mean_of(each: Sequence[Worth]) -> Worth:
    """Of repetitions, which have the same test set."""
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


def text_of(worth: Worth) -> list[str]:
    """The report on the terminal."""
    percent = quantity(worth.task) == "accuracy"

    def show(value: float, std: float | None = None) -> str:
        if not percent:
            return f"{value:.4g}" + ("" if std is None else f" ± {std:.2g}")
        return f"{100 * value:.2f}" + ("" if std is None else f" ± {100 * std:.2f}") + " %"

    test = {name: value for name, value in worth.metrics.items() if name.startswith("test/")}
    shown = {
        name.removeprefix("test/"): show(value, worth.std.get(name))
        if name == "test/accuracy"
        else f"{value:.4g}" + (f" ± {worth.std[name]:.2g}" if worth.std else "")
        for name, value in test.items()
    }
    lines = [f"test set {worth.name}: " + ", ".join(f"{name} {text}" for name, text in shown.items())]
    if worth.repetitions:
        lines.insert(0, f"{len(worth.repetitions)} repetitions: means and standard deviations over them")
    if len(worth.values):
        names = {name.rpartition("/")[2].partition("_")[2]: name for name in worth.metrics if name not in test}
        figures = {key: show(worth.metrics[name], worth.std.get(name)) for key, name in names.items()}
        unit = "percentage points" if percent else ""
        std = (100 if percent else 1) * worth.metrics[names["std"]]
        num = len(worth.repetitions[0].values if worth.repetitions else worth.values)
        each = " in each repetition" if worth.repetitions else ""
        lines += [
            f"by client ({num} clients{each}), {quantity(worth.task)}: mean {figures['mean']}, "
            f"worst tenth {figures['worst_decile']}, best tenth {figures['best_decile']}",
            f"  standard deviation {std:.4g} {unit}, variance {std**2:.4g}",
        ]
    if worth.classes:
        width = max(len(name) for name, _, _ in worth.classes)
        spreads: Sequence[float | None] = worth.class_std or [None] * len(worth.classes)
        rows = [(name, num, show(value, std)) for (name, num, value), std in zip(worth.classes, spreads)]
        lines += ["by class:", *(f"  {name:{width}} {num:7,} {text:>9}" for name, num, text in rows)]
    return lines


def write(worth: Worth, out: Path) -> None:
    """Write the tables and the picture to a folder. Raises ValueError: it cannot be written."""
    name, percent = quantity(worth.task), quantity(worth.task) == "accuracy"
    every = worth.repetitions
    more = ",std" if every else ""
    rows = [(metric, value, worth.std[metric]) if every else (metric, value) for metric, value in worth.metrics.items()]
    tables: dict[str, tuple[str, list[tuple[Any, ...]]]] = {"metrics.csv": (f"metric,value{more}", rows)}
    if every:
        head = ",".join(["repetition", *worth.metrics])
        tables["repetitions.csv"] = head, [(at, *one.metrics.values()) for at, one in enumerate(every)]
    if len(worth.values):
        judged = [
            ((at,) if every else ()) + pair
            for at, one in enumerate(every or [worth])
            for pair in zip(one.clients.tolist(), one.values.tolist())
        ]
        tables["clients.csv"] = ("repetition," if every else "") + f"client,{name}", judged
    if worth.classes:
        spreads = [(std,) for std in worth.class_std] if every else [()] * len(worth.classes)
        classed = [(*row, *std) for row, std in zip(worth.classes, spreads)]
        tables["classes.csv"] = f"class,samples,accuracy{more}", classed
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    for file, (head, rows) in tables.items():
        text = "\n".join([head, *(",".join(map(_cell, row)) for row in rows)]) + "\n"
        write_atomically(out / file, text.encode())
    if len(worth.values) and can_draw():
        scale = 100 if percent else 1
        figures = (("mean", "mean"), ("worst tenth", "worst_decile"), ("best tenth", "best_decile"))
        marks = {words: scale * worth.metrics[f"per_client/{name}_{key}"] for words, key in figures}
        classes = [(label, scale * value) for label, _, value in worth.classes]
        num = len((every[0] if every else worth).values)
        title = f"{worth.name}, {num} clients" + (f" in each of {len(every)} repetitions" if every else "")
        axis = "accuracy (%)" if percent else "loss"
        plot_clients(scale * worth.values, out / "clients.png", axis, marks, classes, title)


def _cell(value: Any) -> str:
    text = str(value)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(mark in text for mark in ',"\n') else text
