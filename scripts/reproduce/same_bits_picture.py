"""Pictures of accuracy against bits, for every task of `same_bits`: some thirty methods, of which a few are named."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from fedcomp.display import figure, units
from scripts.reproduce.records import Records
from scripts.reproduce.same_bits_search import ACCURACY, Task

Curve = tuple[list[float], list[float]]
"""(total bits, accuracy in percent), means over the seeds."""
NAMED = ("FedAvg", "FedAvg-SVRG", "FedMRN", "FedScalar", "Rand-k-Spatial", "BiCompFL-GR")
"""What a reader looks for: the five papers' methods and FedAvg, of each the row that ends best."""
ACCURACY_TICKS = (0, 10, 20, 40, 60, 70, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99, 99.5)
"""Percent; where three of them are not in the picture, multiples of 5 or whole numbers."""
SMALLEST_ERROR = 0.1
"""Percent: where an accuracy of 100 % is drawn."""
SIZE = (8.0, 5.2)
"""Inches."""
OTHERS = "#C8C8C8"


def picture(records: Records, file: str) -> str:
    """The line of a page that shows it; nothing where nothing was run."""
    return f"![Accuracy against bits in both directions]({file})" if records else ""


def draw_curves(records: Records, task: Task, path: Path, own: str = "") -> None:
    """Accuracy against total bits; nothing where nothing was run.

    Both axes are logarithmic, that of the accuracy in its errors: 96 and 98 % are as far apart as 60 and 80 %.
    What is best for some number of bits is drawn thick; beside that `NAMED` have colours, and all others are grey.
    The method that is called `own` is black, with stars.
    """
    if not records:
        return
    curves = {label: _curve(records.where(label=label)) for label in records.values("label")}
    first, named = first_for_some_bits(curves, task), _named(curves)
    coloured = sorted(first | named | ({own} & curves.keys()), key=lambda label: -curves[label][1][-1])
    colours = figure.COLOURS[:-1] if own else figure.COLOURS
    page = figure.new_figure(*SIZE)
    axes = page.add_subplot()
    figure.style(axes, "bits sent in both directions", "test accuracy, % (log scale of errors)")
    for number, label in enumerate(coloured):
        turn, colour = divmod(number, len(colours))
        bits, accuracy = curves[label]
        axes.plot(
            bits,
            _errors(accuracy),
            color=figure.COLOURS[-1] if label == own else colours[colour],
            linestyle="-" if label == own else figure.DASHES[turn % len(figure.DASHES)],
            linewidth=2.4 if label in first else 1.2,
            marker="*" if label == own else figure.MARKERS[colour],
            zorder=3 if label == own else 2,
            markersize=10 if label == own else 5,
            markevery=max(1, len(bits) // 5) if label == own else [-1],
            label=figure.drawable(label),
        )
    grey = [label for label in curves if label not in coloured]
    for number, label in enumerate(grey):
        bits, accuracy = curves[label]
        name = None if number else units.counted(len(grey), "other method")
        axes.plot(bits, _errors(accuracy), color=OTHERS, linewidth=0.9, zorder=1.5, label=name)
    errors = _errors(value for _, accuracy in curves.values() for value in accuracy)
    smallest, largest = min(errors), max(errors)
    ends = 0.9 * smallest, min(100.0, 1.02 * largest)
    choices = (ACCURACY_TICKS, range(0, 100, 5), range(100))
    each = [[value for value in ticks if ends[0] <= 100 - value <= ends[1]] for ticks in choices]
    shown = next((ticks for ticks in each if len(ticks) >= 3), each[-1])
    figure.log_axis(axes, "x", units.bits)
    axes.set(yscale="log", ylim=ends[::-1])
    axes.set_yticks([100 - value for value in shown], [f"{value:g}" for value in shown])
    axes.set_yticks([], minor=True)
    names = axes.legend(loc="upper left", fontsize=8, frameon=False, labelcolor=figure.INK, alignment="left")
    title = "best at its last bits first;\nthick: best for some number of bits"
    names.set_title(title, {"size": 8})
    names.get_title().set_color(figure.INK)
    figure.save(page, path)


def first_for_some_bits(curves: Mapping[str, Curve], task: Task) -> set[str]:
    """Labels whose accuracy at some number of bits is not near chance, and nothing has reached it with as few."""
    points = sorted(
        (bits, -accuracy, label)
        for label, own in curves.items()
        for bits, accuracy in zip(*own, strict=True)
        if not task.near_chance(accuracy / 100)
    )
    found, best = set(), 0.0
    for _, negative, label in points:
        if -negative > best:
            found.add(label)
            best = -negative
    return found


def _named(curves: Mapping[str, Curve]) -> set[str]:
    """Of each of NAMED the label that ends best: rows differ in what stands behind a comma or a space."""
    rows = ([label for label in curves if f"{label} ".replace(",", " ").startswith(f"{name} ")] for name in NAMED)
    return {max(own, key=lambda label: curves[label][1][-1]) for own in rows if own}


def _curve(runs: Records) -> Curve:
    """At the rounds that all seeds have, from the first bits on."""
    lines = [{line["round"]: line for line in run.lines} for run in runs]
    shared = sorted(set.intersection(*(set(one) for one in lines)) - {0.0})
    means = [[sum(one[at][name] for one in lines) / len(lines) for at in shared] for name in ("bits/total", ACCURACY)]
    return means[0], [100 * value for value in means[1]]


def _errors(accuracy: Iterable[float]) -> list[float]:
    """Percent, of accuracies in percent; above 0, which has no place on a log scale."""
    return [max(100 - value, SMALLEST_ERROR) for value in accuracy]
