"""Rand-k-Spatial and Rand-k-Temporal (Jhunjhunwala et al., NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import (
    Cell,
    average,
    claims,
    every,
    less,
    made_with,
    picture,
    rounds,
    spread,
    table,
    verdict,
)
from scripts.reproduce.records import Folder, Records, Run

FRACTION = "compressor.fraction"
TASK = (FRACTION, "partition")
MSE = Experiment(
    "rand_k_mse",
    ["experiment=rand_k/mse"],
    "compressor.fraction=0.1,0.5 dataset.correlation=0,9",
    ["mse", "mse/closed_form", "mse/error", "bits/uplink"],
    [FRACTION, "dataset.correlation"],
    {"mse": "rand_k_mse.png"},
)
POWER = Experiment(
    "rand_k_power_iteration",
    [f"experiment=rand_k/power_iteration dataset=fashion_mnist seed={seed}" for seed in (0, 1, 2)],
    "rounds=10 compressor.fraction=0.1 seed=0",
    ["test/distance", "vectors/correlation", "bits/uplink", "bpp/uplink", "paper/bpp/uplink"],
    TASK,
    {"distance": "rand_k_power_iteration.png"},
)
KMEANS = Experiment(
    "rand_k_kmeans",
    [f"experiment=rand_k/kmeans dataset=fashion_mnist seed={seed}" for seed in (0, 1, 2)],
    "rounds=10 compressor.fraction=0.1 seed=0",
    ["test/objective", "bits/uplink", "bpp/uplink", "paper/bpp/uplink"],
    TASK,
    {"objective": "rand_k_kmeans.png"},
)
LOGISTIC = Experiment(
    "rand_k_logistic",
    [f"experiment=rand_k/logistic seed={seed}" for seed in (0, 1, 2)],
    "rounds=20 compressor.fraction=0.01 seed=0",
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

{_claims(mse, power, kmeans, logistic)}

The paper counts 32 bits for a value and none for its index. Wangni and Induced send indices, whose bits are counted
here: the tables show the true bits per parameter with the paper's count in brackets. It does not say the number of
rounds and repetitions, the measure of distance, nor how k-means weights clients: here counts are sent too. Lemma 2
conditions on M_j ≥ 1, which taken literally is biased
(`tests/compressor/estimators/test_spatial.py::test_conditioning_of_the_papers_lemma_2_would_be_biased`), and the memory
that all clients share (appendix D.1) diverges unless (1/p − 1) Σ wᵢ² < 1
(`tests/compressor/estimators/test_temporal.py::test_a_shared_memory_is_refused_where_its_error_grows`).

## Error over correlation

{made_with(MSE, mse)}

n = 10, d = 100, 1,000 repetitions: the paper's figure 6, with its closed forms as dashed lines. Rand-Proj-Spatial
sends as many random projections in place of random entries (d = 100 is padded to 128): it wins where vectors are
alike, and loses where they are not. Mean squared error:

{_errors(mse)}

{picture("Mean squared error over R2/R1", "rand_k_mse.png", mse)}

## Power iteration

{made_with(POWER, power)}

Fashion-MNIST, 100 clients. The measure is 1 − ⟨w, v₁⟩², the distance to the principal eigenvector.

{_grids(power, DISTANCE, "{:.3g}".format)}

{picture("Distance to the principal eigenvector over the share of entries sent", "rand_k_power_iteration.png", power)}

## K-means

{made_with(KMEANS, kmeans)}

Fashion-MNIST, 100 clients, 10 clusters. The table shows the objective on test data; lower is better.

{_grids(kmeans, OBJECTIVE, "{:.1f}".format)}

{picture("Objective of k-means over the share of entries sent", "rand_k_kmeans.png", kmeans)}

## Logistic regression

{made_with(LOGISTIC, logistic)}

CIFAR-10 (lossless), 10 clients of two labels. Test accuracy in percent.

{_grids(logistic, "test/accuracy", "{:.1f}".format, 100)}

{picture("Test accuracy over the share of entries sent", "rand_k_logistic.png", logistic)}
"""


def _claims(mse: Records, power: Records, kmeans: Records, logistic: Records) -> str:
    rows: list[tuple[str, str, Experiment | str]] = [
        ("the closed forms of the error (lemma 1, theorem 1)", f"{verdict(_closed_forms(mse))}{_worst(mse)}", MSE),
        (
            "Spatial(Max) has an order of magnitude less error than Rand-k where vectors are equal",
            verdict(_tenfold(mse)),
            MSE,
        ),
        (
            "PCA, i.i.d. data: Spatial(Avg) beats Rand-k, Wangni and Induced",
            _beats(power, DISTANCE, AVG, "iid"),
            POWER,
        ),
        ("PCA, sorted data: Temporal beats them", _beats(power, DISTANCE, TEMPORAL, "shards"), POWER),
        ("k-means, i.i.d. data: Spatial(Avg) beats them", _beats(kmeans, OBJECTIVE, AVG, "iid"), KMEANS),
        ("k-means, sorted data: Temporal beats them", _beats(kmeans, OBJECTIVE, TEMPORAL, "shards"), KMEANS),
        (
            "logistic regression, sorted data: Temporal beats Rand-k for the same bits",
            _accuracy(logistic, RANDK),
            LOGISTIC,
        ),
        (
            "logistic regression, sorted data: Temporal beats Wangni and Induced",
            _accuracy(logistic, WANGNI, INDUCED),
            LOGISTIC,
        ),
    ]
    return claims(rows)


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
        columns += [("bits per parameter at the largest k", _bits), ("rounds", rounds)]
        parts.append(table(partition, [(name, own.where(label=name)) for name in METHODS], columns))
    return "\n\n".join(parts)


def _bits(runs: Records) -> str:
    largest = max(runs, key=lambda run: float(run.about[FRACTION]))
    true, paper = largest.last("bpp/uplink"), largest.last("paper/bpp/uplink")
    assert true is not None
    return f"{true:.3g}" + ("" if paper is None or paper == true else f" ({paper:.3g})")


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
