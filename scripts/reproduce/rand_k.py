"""Rand-k-Spatial and Rand-k-Temporal (Jhunjhunwala et al., NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import Cell, average, every, less, made_with, spread, table, verdict
from scripts.reproduce.records import Folder, Records, Run

FRACTION = "compressor.fraction"
TASK = (FRACTION, "partition")
MSE = Experiment(
    "rand_k_mse",
    ["experiment=rand_k/mse"],
    "rounds=100 eval_every=100 compressor.fraction=0.1 dataset.correlation=0,9",
    ["mse", "mse/closed_form", "mse/error", "bits/uplink"],
    [FRACTION, "dataset.correlation"],
    {"mse": "rand_k_mse.png"},
)
POWER = Experiment(
    "rand_k_power_iteration",
    [f"experiment=rand_k/power_iteration dataset=fashion_mnist seed={seed}" for seed in (0, 1, 2)],
    "rounds=10 compressor.fraction=0.1",
    ["test/distance", "vectors/correlation", "bits/uplink", "bpp/uplink", "paper/bpp/uplink"],
    TASK,
    {"distance": "rand_k_power_iteration.png"},
)
KMEANS = Experiment(
    "rand_k_kmeans",
    [f"experiment=rand_k/kmeans dataset=fashion_mnist seed={seed}" for seed in (0, 1, 2)],
    "rounds=10 compressor.fraction=0.1",
    ["test/objective", "bits/uplink", "bpp/uplink", "paper/bpp/uplink"],
    TASK,
    {"objective": "rand_k_kmeans.png"},
)
LOGISTIC = Experiment(
    "rand_k_logistic",
    [f"experiment=rand_k/logistic seed={seed}" for seed in (0, 1, 2)],
    "rounds=20 compressor.fraction=0.01",
    ["test/accuracy", "train/loss", "bits/uplink", "bpp/uplink", "paper/bpp/uplink"],
    TASK,
    {"accuracy": "rand_k_logistic.png"},
)
EXPERIMENTS = (MSE, POWER, KMEANS, LOGISTIC)

RANDK, AVG, PROJ, TEMPORAL, WANGNI, INDUCED = METHODS = (
    "Rand-k",
    "Rand-k-Spatial (Avg)",
    "Rand-Proj-Spatial (Avg)",
    "Rand-k-Temporal",
    "Wangni",
    "Induced",
)
DISTANCE, OBJECTIVE = "test/distance", "test/objective"
MAX, OPT, PROJ_OPT = "Rand-k-Spatial (Max)", "Rand-k-Spatial (Opt)", "Rand-Proj-Spatial (Opt)"


def page(folder: Folder) -> str:
    """docs/results/rand_k.md."""
    mse, power, kmeans, logistic = folder[MSE], folder[POWER], folder[KMEANS], folder[LOGISTIC]
    return f"""\
# Rand-k-Spatial and Rand-k-Temporal

The tasks of the paper with its numbers of clients, on the data sets that it names, and Rand-Proj-Spatial beside
them. The page is written by `make reproduce PAPER=rand_k SCALE=paper`.

| claim of the paper | here |
| --- | --- |
| the closed forms of the error (lemma 1, theorem 1) | {verdict(_closed_forms(mse))}{_worst(mse)} |
| Spatial(Max) has an order of magnitude less error than Rand-k where vectors are equal | {verdict(_tenfold(mse))} |
| power iteration, i.i.d. data: Spatial(Avg) beats Rand-k, Wangni and Induced | {_beats(power, DISTANCE, AVG, "iid")} |
| power iteration, sorted data: Temporal beats them | {_beats(power, DISTANCE, TEMPORAL, "shards")} |
| k-means, i.i.d. data: Spatial(Avg) beats them | {_beats(kmeans, OBJECTIVE, AVG, "iid")} |
| k-means, sorted data: Temporal beats them | {_beats(kmeans, OBJECTIVE, TEMPORAL, "shards")} |
| logistic regression, sorted data: Temporal beats Rand-k for the same bits | {_accuracy(logistic, RANDK)} |
| logistic regression, sorted data: Temporal beats Wangni and Induced | {_accuracy(logistic, WANGNI, INDUCED)} |

The paper counts 32 bits for a value and none for its index. Wangni and Induced send indices, whose bits are counted
here: the tables show the true bits per parameter with the paper's count in brackets.

## Error over correlation

{made_with(MSE, mse)}

n = 10, d = 100, 1,000 repetitions: the paper's figure 6, with its closed forms as dashed lines. Rand-Proj-Spatial
sends as many random projections in place of random entries (d = 100 is padded to 128): it wins where vectors are
alike, and loses where they are not. Mean squared error:

{_errors(mse)}

![Mean squared error over R2/R1](rand_k_mse.png)

## Power iteration

{made_with(POWER, power)}

Fashion-MNIST, 100 clients. The measure is 1 − ⟨w, v₁⟩², the distance to the principal eigenvector.

{_grids(power, DISTANCE, "{:.3g}".format)}

![Distance to the principal eigenvector over the share of entries sent](rand_k_power_iteration.png)

## K-means

{made_with(KMEANS, kmeans)}

Fashion-MNIST, 100 clients, 10 clusters. The table shows the objective on test data; lower is better.

{_grids(kmeans, OBJECTIVE, "{:.1f}".format)}

## Logistic regression

{made_with(LOGISTIC, logistic)}

CIFAR-10 (lossless), 10 clients of two labels. Test accuracy in percent.

{_grids(logistic, "test/accuracy", "{:.1f}".format, 100)}

## Earlier runs, whose records were not kept

K-means on MNIST (`fedcomp experiment=rand_k/kmeans`), one seed, 30 rounds; the objective on test data, lower is
better:

| k/d | Rand-k | Spatial (Avg) | Temporal | Wangni | Induced |
| --- | ---: | ---: | ---: | ---: | ---: |
| i.i.d., .05 / .1 / .2 | 495 / 453 / 429 | 423 / 415 / 414 | 435 / 416 / 413 | 456 / 433 / 421 | 540 / 461 / 428 |
| shards, .05 / .1 / .2 | 619 / 548 / 456 | 576 / 510 / 447 | 575 / 424 / 416 | 458 / 431 / 420 | 569 / 472 / 431 |

Softmax regression on CIFAR-10 as JPEG (`fedcomp experiment=rand_k/logistic dataset=cifar10_jpeg`), one seed, 200
rounds. Test accuracy (%) at k/d = 0.005 / 0.01 / 0.02: Rand-k 30.7 / 33.4 / 35.0, Spatial(Avg) 30.7 / 33.3 / 35.0,
Temporal 32.3 / 35.1 / 37.2, Wangni 34.4 / 36.3 / 37.0, Induced 28.5 / 31.2 / 34.5."""


def _closed_forms(records: Records) -> bool | None:
    """Whether errors are within 4 standard errors of the closed form; runs whose error does not vary must equal it."""
    return every([_deviation(run) < 4 for run in records if run.last("mse/closed_form") is not None])


def _deviation(run: Run) -> float:
    error, expected, deviation = (run.last(f"mse{name}") for name in ("", "/closed_form", "/error"))
    assert error is not None
    assert expected is not None
    if abs(error - expected) <= 1e-9 + 1e-5 * expected:  # runs whose error does not vary, up to rounding
        return 0.0
    return abs(error - expected) / deviation if deviation else float("inf")


def _worst(records: Records) -> str:
    if not records:
        return ""
    worst = max(_deviation(run) for run in records if run.last("mse/closed_form") is not None)
    return f": of {len(records)} runs none is further than {worst:.1f} standard errors from them"


def _tenfold(records: Records) -> bool | None:
    equal = records.where(dataset__correlation="9", compressor__fraction="0.5")
    own, plain = (average(equal.where(label=name), lambda run: run.last("mse")) for name in (MAX, RANDK))
    return less(None if own is None else 10 * own, plain)


def _errors(records: Records) -> str:
    """Of the smallest and largest correlation and one between, the error of each estimator."""
    rows = []
    for fraction, correlation in product(records.values(FRACTION), ("-1", "0", "4", "9")):
        runs = records.where(compressor__fraction=fraction, dataset__correlation=correlation)
        rows.append((f"k = {100 * float(fraction):.0f}, R2/R1 = {correlation}", runs))

    def cell(label: str) -> Cell:
        return lambda runs: spread(runs.where(label=label).collect(lambda run: run.last("mse")), "{:.3g}".format)

    return table("", rows, [(label, cell(label)) for label in (RANDK, AVG, MAX, OPT, PROJ, PROJ_OPT)])


def _grids(records: Records, metric: str, show: Callable[[float], str], scale: float = 1.0) -> str:
    """Of each partition, a table of methods by the share of entries that is sent."""
    parts = []
    for partition in records.values("partition"):
        own = records.where(partition=partition)

        def cell(fraction: str) -> Cell:
            def of(runs: Records) -> str:
                found = runs.where(compressor__fraction=fraction)
                return spread(found.collect(lambda run: run.last(metric)), show, scale)

            return of

        columns: list[tuple[str, Cell]] = [(f"k/d = {fraction}", cell(fraction)) for fraction in own.values(FRACTION)]
        columns += [("bits per parameter at the largest k", _bits), ("rounds", _rounds)]
        parts.append(table(partition, [(name, own.where(label=name)) for name in METHODS], columns))
    return "\n\n".join(parts)


def _bits(runs: Records) -> str:
    largest = max(runs, key=lambda run: float(run.about[FRACTION]))
    true, paper = largest.last("bpp/uplink"), largest.last("paper/bpp/uplink")
    assert true is not None
    return f"{true:.3g}" + ("" if paper is None or paper == true else f" ({paper:.3g})")


def _rounds(runs: Records) -> str:
    return str(min(run.rounds for run in runs))


def _mean(records: Records, label: str, metric: str) -> float | None:
    return average(records.where(label=label), lambda run: run.last(metric))


def _beats(records: Records, metric: str, method: str, partition: str) -> str:
    """Whether the method's value is below the baselines' at every k; else where it is not."""
    own = records.where(partition=partition)
    found = {
        (fraction, other): less(_mean(chosen, method, metric), _mean(chosen, other, metric))
        for fraction in own.values(FRACTION)
        for other in (RANDK, WANGNI, INDUCED)
        for chosen in [own.where(compressor__fraction=fraction)]
    }
    return _with_exceptions(found)


def _accuracy(records: Records, *others: str) -> str:
    """Whether Temporal is more accurate than the others at every k; else where it is not."""
    found = {
        (fraction, other): less(_mean(chosen, other, "test/accuracy"), _mean(chosen, TEMPORAL, "test/accuracy"))
        for fraction in records.values(FRACTION)
        for other in others
        for chosen in [records.where(compressor__fraction=fraction)]
    }
    return _with_exceptions(found)


def _with_exceptions(found: dict[tuple[str, str], bool | None]) -> str:
    wrong = [f"{other} at k/d = {fraction}" for (fraction, other), holds in found.items() if holds is False]
    text = verdict(every(list(found.values())))
    return f"{text}: not against {', '.join(wrong)}" if wrong else text
