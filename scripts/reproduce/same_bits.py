"""The five papers' methods and their neighbours: accuracy for the same bits in both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import yaml

from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import ROTATION_BEFORE, made_with, rounds, spread, table
from scripts.reproduce.records import Folder, Records, Run

METHOD = "experiment/neighbours/method@_global_"
GRIDS = (
    (
        "fedavg,topk,doublesqueeze,fedmrn,randk_spatial,gr,fedbat,deltamask,powersgd,ef21,cafe,tamuna,scaffold,scallion,"
        "eden,turboquant,rand_proj_spatial,svrg",
        "client.lr=0.03,0.1,0.3,1,3",
    ),
    ("fedmud,fetchsgd", "client.lr=0.01,0.03,0.1,0.3,1"),
    ("fedscalar", "client.lr=0.003,0.01,0.03,0.1,0.3"),
    ("diloco", "client.lr=0.0003,0.001,0.003,0.01,0.03"),
    ("sparseloco", "client.lr=0.001,0.003,0.01,0.03,0.1"),
    ("decomfl", "algorithm.lr=0.001,0.003,0.01,0.03,0.1"),
    ("fedkseed", "algorithm.lr=0.0003,0.001,0.003,0.01,0.03"),
)
"""Methods and the five rates that are tried for each."""
SHORT = "seed=10,11 rounds=40 max_bits=3.2e8 eval_every=40 name=neighbours_tuning"
RATES = ["client.lr", "algorithm.lr"]
TUNING = Experiment(
    "neighbours_tuning",
    [f"experiment=neighbours/bits_mnist {METHOD}={methods} {rates} {SHORT}" for methods, rates in GRIDS],
    None,
    ["test/accuracy", "bits/uplink", "bits/total"],
    RATES,
    keep_failed=True,
)
BITS = Experiment(
    "neighbours_bits_mnist",
    ["experiment=neighbours/bits_mnist"],
    "rounds=20 max_bits=1e8 seed=0",
    ["test/accuracy", "test/loss", "bits/uplink", "bits/total"],
    RATES,
    keep_failed=True,
)
EXPERIMENTS = (TUNING, BITS)
BUDGETS = (("3 Mbit", 3e6), ("30 Mbit", 3e7), ("300 Mbit", 3e8), ("1.28 Gbit", 1.4e9))
"""Total bits at which methods are compared; a run's last round may go a little beyond its budget."""
UPLINK_BUDGETS = (("0.3 Mbit", 3e5), ("3 Mbit", 3e6), ("30 Mbit", 3e7), ("300 Mbit", 3e8))
PICTURE = "same_bits.png"
METHODS = Path(__file__).resolve().parents[2] / "conf" / "experiment" / "neighbours" / "method"
ACCURACY = "test/accuracy"


def page(folder: Folder) -> str:
    """docs/results/same_bits.md."""
    tuning, bits = folder[TUNING], folder[BITS]
    failed, bits = bits.where(state="failed"), completed(bits)
    order = sorted(bits.values("label"), key=lambda label: -_mean(bits.where(label=label), _final))
    return f"""\
# Accuracy for the same bits

One method of each family, the five papers' and their [neighbours](neighbours.md), with the same budget of true bits in
both directions. The page is written by `make reproduce PAPER=same_bits SCALE=paper`.

{made_with(BITS, folder[BITS])}

LeNet-5 on MNIST; 10 clients with Dirichlet(0.3) classes, all in every round, 5 local steps on batches of 32
(FedAvg-SVRG: 5 corrected steps after a full gradient; DeComFL: one step along 20 directions). A run ends after the
round by which 1.28 Gbit were sent in both directions, as FedAvg does after 33 rounds, or after 160 rounds, which is
what limits methods that send little. Bits are those of all clients' messages, with seeds, indices, scales and all that
goes down. Accuracies are of the last round, mean ± sample standard deviation over the seeds; bits are means, those to
85 % where every seed came so far.

{ROTATION_BEFORE}

{_results(bits, order)}

{_picture(bits)}

## What wins where

Highest accuracy by the time so many bits were sent in both directions:

{_leaders(bits, "bits/total", BUDGETS)}

And by the time so many bits were sent up, which is what counts where the downlink is free:

{_leaders(bits, "bits/uplink", UPLINK_BUDGETS)}

{_missing(bits)}

## Learning rates

{made_with(TUNING, tuning)}

Every method has the best of five rates, about a factor of 3 apart around its default or published one, by the mean
test accuracy on two other seeds (and other partitions) after a quarter of the bits and rounds; a rate with which a run
diverged, then or in the experiment itself, is not taken.{_diverged(failed, tuning)}
Accuracy in percent by rate:

{_rates(tuning)}
"""


def draw(folder: Folder, place: Path) -> None:
    """Accuracy against total bits on a log axis, each line with its label at its end; nothing where nothing was run."""
    records = completed(folder[BITS])
    if not records:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 8), layout="constrained")
    colours, ends = [pyplot.get_cmap("tab10")(number) for number in range(10)], []
    for number, label in enumerate(records.values("label")):
        x, y = _curve(records.where(label=label))
        style = ("-", "--", ":")[number // 10]
        axes.plot(x, y, style, color=colours[number % 10], linewidth=1.6)
        ends.append((y[-1], x[-1], label, colours[number % 10]))
    axes.set(xscale="log", xlabel="bits sent in both directions", ylabel="test accuracy, %", ylim=(0, 102))
    axes.grid(alpha=0.3)
    last = 104.0
    for height, x_end, label, colour in sorted(ends, reverse=True):
        last = min(height, last - 2.6)
        axes.annotate(
            label,
            (x_end, height),
            (1.01, last / 102),
            textcoords="axes fraction",
            color=colour,
            fontsize=9,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "alpha": 0.35, "linewidth": 0.8, "relpos": (0, 0.5)},
        )
    figure.savefig(place / PICTURE, dpi=110)
    pyplot.close(figure)


def _curve(runs: Records) -> tuple[list[float], list[float]]:
    """(total bits, accuracy in percent), means over the seeds at the rounds that all have, from the first bits on."""
    lines = [{line["round"]: line for line in run.lines} for run in runs]
    shared = sorted(set.intersection(*(set(one) for one in lines)) - {0.0})
    means = [[sum(one[at][name] for one in lines) / len(lines) for at in shared] for name in ("bits/total", ACCURACY)]
    return means[0], [100 * value for value in means[1]]


def _final(run: Run) -> float | None:
    return run.last(ACCURACY)


def _mean(runs: Records, value: Callable[[Run], float | None]) -> float:
    found = runs.collect(value)
    return sum(found) / len(found) if found else -1.0


def _by(limit: float, bits: str) -> Callable[[Run], float | None]:
    """The best accuracy by the time that so many bits were sent."""

    def value(run: Run) -> float | None:
        return max((one[ACCURACY] for one in run.lines if 0 < one[bits] <= limit), default=None)

    return value


def _to(target: float, bits: str) -> Callable[[Run], float | None]:
    """Bits when the accuracy was first evaluated to be so high."""
    return lambda run: next((line[bits] for line in run.lines if line.get(ACCURACY, 0) >= target), None)


def _percent(value: float) -> str:
    return f"{value:.1f}"


def _megabits(bits: Sequence[float]) -> str:
    """The mean of numbers of bits, in megabits; nothing where there is none."""
    if not bits:
        return ""
    mean = fmean(bits) / 1e6
    return f"{mean:.3g}" if mean < 1000 else f"{mean:.0f}"


def _all(runs: Records, value: Callable[[Run], float | None]) -> list[float]:
    """One value a run; none at all where a run has none."""
    found = runs.collect(value)
    return found if len(found) == len(runs) else []


def _results(bits: Records, order: Sequence[str]) -> str:
    rows = [(label, bits.where(label=label)) for label in order]
    return table(
        "",
        rows,
        [
            ("accuracy, %", lambda runs: spread(runs.collect(_final), _percent, 100)),
            ("rounds", rounds_done),
            ("Mbit up", lambda runs: _megabits(runs.collect(lambda run: run.last("bits/uplink")))),
            ("Mbit in all", lambda runs: _megabits(runs.collect(lambda run: run.last("bits/total")))),
            ("Mbit up to 85 %", lambda runs: _megabits(_all(runs, _to(0.85, "bits/uplink")))),
            ("Mbit in all to 85 %", lambda runs: _megabits(_all(runs, _to(0.85, "bits/total")))),
        ],
    )


def rounds_done(runs: Records) -> str:
    """A cell: the rounds that were done, where the budget of bits may end a run."""
    return (
        str(min(run.rounds for run in runs)) if all(run.about["state"] == "finished" for run in runs) else rounds(runs)
    )


def _leaders(records: Records, bits: str, budgets: Sequence[tuple[str, float]]) -> str:
    """Of each budget, the four methods with the highest mean accuracy of those all of whose seeds sent no more."""
    if not records:
        return ""
    lines = ["| bits | first | second | third | fourth |", "| --- | --- | --- | --- | --- |"]
    for name, limit in budgets:
        found = {label: _all(records.where(label=label), _by(limit, bits)) for label in records.values("label")}
        scores = [(fmean(values), label) for label, values in found.items() if values]
        best = [f"{label} {100 * score:.1f}" for score, label in sorted(scores, reverse=True)[:4]]
        lines.append(f"| {' | '.join([name, *best, *[''] * (4 - len(best))])} |")
    return "\n".join(lines)


def _missing(bits: Records) -> str:
    """The methods that were not run."""
    done = {run.about["label"] for run in bits}
    labels = [yaml.safe_load(path.read_text(encoding="utf-8"))["label"] for path in sorted(METHODS.glob("*.yaml"))]
    missing = [label for label in labels if label not in done]
    return f"Not run so far: {'; '.join(missing)}." if bits and missing else ""


def _rates(tuning: Records) -> str:
    rows = []
    for label in tuning.values("label"):
        runs = tuning.where(label=label)
        option = _tuned_option(runs)
        by_rate = {float(rate): tuning_score(runs.where(**{option: rate})) for rate in runs.values(option)}
        cells = ", ".join(f"{rate:g}: {_shown(by_rate[rate])}" for rate in sorted(by_rate))
        rows.append(f"| {label} | {cells} |")
    return "\n".join(["| method | accuracy by rate |", "| --- | --- |", *rows]) if rows else ""


def _tuned_option(runs: Records) -> str:
    """Which of `RATES` differs among a method's runs."""
    return next((name for name in RATES if len(runs.values(name)) > 1), RATES[0])


def tuning_score(runs: Records) -> float | None:
    """The mean final accuracy of one rate's runs; None where one of them diverged."""
    return _mean(runs, _final) if all(run.about["state"] != "failed" for run in runs) else None


def _shown(score: float | None) -> str:
    return "diverged" if score is None else _percent(100 * score)


def completed(bits: Records) -> Records:
    """The runs that have not failed."""
    return replace(bits, runs=[run for run in bits if run.about["state"] != "failed"])


def _diverged(failed: Records, tuning: Records) -> str:
    """A sentence on each method whose runs diverged in the experiment itself, with the last round evaluated."""
    sentences = []
    for label in failed.values("label"):
        runs = failed.where(label=label)
        rates = " and ".join(runs.values(_tuned_option(tuning.where(label=label))))
        first = min(run.rounds for run in runs)
        sentences.append(f" {label} diverged with {rates} in {len(runs)} runs, the first after round {first}.")
    return "".join(sentences)


def _picture(bits: Records) -> str:
    return f"![Accuracy against bits in both directions]({PICTURE})" if bits else ""
