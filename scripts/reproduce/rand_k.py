"""Rand-k-Spatial and Rand-k-Temporal (Jhunjhunwala et al., NeurIPS 2021)."""

from collections.abc import Callable, Sequence
from itertools import product

from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import (
    Cell,
    average,
    claims,
    every,
    less,
    made_with,
    measured,
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
ALMOST_TWO = 0.015
"""Accuracy that is "2 %" in whole percents."""
DISTANCE, OBJECTIVE = "test/distance", "test/objective"
ERROR = "1 - test/accuracy"
"""The share of wrong predictions."""
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
rounds and repetitions, the measure of distance, nor how k-means weights clients: here counts are sent too. Non-IID
is two shards of the sorted labels a client, as in the paper (`shards`); baselines are Rand-k, Wangni and Induced.
Lemma 2 conditions on M_j ≥ 1, which taken literally is biased
(`tests/compressor/estimators/test_spatial.py::test_conditioning_of_the_papers_lemma_2_would_be_biased`). The memory
that all clients share (appendix D.1) is stable for the paper's n = 100; where (1/p − 1) Σ wᵢ² ≥ 1, as with few clients,
it would diverge, and is refused
(`tests/compressor/estimators/test_spatial.py::test_a_shared_memory_is_refused_where_its_error_grows`).

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

{_grids(power, DISTANCE, lambda values: measured(values, "{:.3g}".format))}

{picture("Distance to the principal eigenvector over the share of entries sent", "rand_k_power_iteration.png", power)}

## K-means

{made_with(KMEANS, kmeans)}

Fashion-MNIST, 100 clients, 10 clusters. The table shows the objective on test data; lower is better.

{_grids(kmeans, OBJECTIVE, lambda values: spread(values, "{:.1f}".format))}

{picture("Objective of k-means over the share of entries sent", "rand_k_kmeans.png", kmeans)}

## Logistic regression

{made_with(LOGISTIC, logistic)}

CIFAR-10 (lossless), 10 clients of two labels. Test accuracy in percent.

{_grids(logistic, "test/accuracy", lambda values: spread(values, "{:.1f}".format, 100))}

{picture("Test accuracy over the share of entries sent", "rand_k_logistic.png", logistic)}
"""


def _claims(mse: Records, power: Records, kmeans: Records, logistic: Records) -> str:
    rows: list[tuple[str, str, Experiment | str]] = [
        ("the closed forms of the error (lemma 1, theorem 1)", f"{verdict(_closed_forms(mse))}{_worst(mse)}", MSE),
        (
            'k/d = 0.5: Spatial(Max) and (Avg) "have an order of magnitude lower MSE than Rand-k for R₂/R₁ ≥ 8" '
            "(appendix B.1)",
            _tenfold(mse),
            MSE,
        ),
        (
            'PCA: Spatial(Avg) and Temporal "outperform baselines in all cases" (figure 8: IID and Non-IID)',
            _everywhere(_beaten(power, DISTANCE, (AVG, TEMPORAL))),
            POWER,
        ),
        (
            'k-means: Temporal "outperforms baselines in most cases" (appendix C.4: IID and Non-IID)',
            _mostly(_beaten(kmeans, OBJECTIVE, (TEMPORAL,))),
            KMEANS,
        ),
        (
            'k-means: Spatial(Avg) "outperforms baselines in the IID case" (appendix C.4)',
            _everywhere(_beaten(kmeans.where(partition="iid"), OBJECTIVE, (AVG,))),
            KMEANS,
        ),
        (
            'logistic regression, Non-IID: Temporal "achieves lower training loss" than other baselines "in all '
            'cases" (figure 10)',
            _everywhere(_beaten(logistic, "train/loss", (TEMPORAL,))),
            LOGISTIC,
        ),
        (
            'logistic regression, Non-IID: and "2-3% higher test accuracy in all cases" (figure 10)',
            _everywhere(_beaten(logistic, ERROR, (TEMPORAL,), ALMOST_TWO)),
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


def _tenfold(records: Records) -> str:
    """How many times the errors of Max and Avg are below Rand-k's, and whether at least ten times."""
    found = {
        (label, ratio): [average(one.where(label=name), lambda run: run.last("mse")) for name in (RANDK, label)]
        for ratio in ("8", "9")
        for one in [records.where(dataset__correlation=ratio, compressor__fraction="0.5")]
        for label in (MAX, AVG)
    }
    times = {at: plain / own for at, (plain, own) in found.items() if plain is not None and own}
    if len(times) < len(found):
        return ""
    shown = "; ".join(
        f"at {ratio}, {times[MAX, ratio]:.3g} times (Max) and {times[AVG, ratio]:.3g} times (Avg)"
        for ratio in ("8", "9")
    )
    return f"{verdict(all(one >= 10 for one in times.values()))}: {shown}"


def _errors(records: Records) -> str:
    """Of the smallest and largest correlation and one between, the error of each estimator."""
    rows = []
    for fraction, correlation in product(records.values(FRACTION), ("-1", "0", "4", "9")):
        runs = records.where(compressor__fraction=fraction, dataset__correlation=correlation)
        rows.append((f"k = {100 * float(fraction):.0f}, R2/R1 = {correlation}", runs))

    def cell(label: str) -> Cell:
        return lambda runs: measured(runs.where(label=label).collect(lambda run: run.last("mse")), "{:.3g}".format)

    return table("", rows, [(label, cell(label)) for label in (RANDK, AVG, MAX, OPT, PROJ, PROJ_OPT)])


def _grids(records: Records, metric: str, show: Callable[[Sequence[float]], str]) -> str:
    """Of each partition, a table of methods by the share of entries that is sent."""
    parts = []
    for partition in records.values("partition"):
        own = records.where(partition=partition)

        def cell(fraction: str) -> Cell:
            def of(runs: Records) -> str:
                found = runs.where(compressor__fraction=fraction)
                return show(found.collect(lambda run: run.last(metric)))

            return of

        columns: list[tuple[str, Cell]] = [(f"k/d = {fraction}", cell(fraction)) for fraction in own.values(FRACTION)]
        columns += [("bits per parameter at the largest k", _bits), ("rounds", rounds)]
        parts.append(table(partition, [(name, own.where(label=name)) for name in METHODS], columns))
    return "\n\n".join(parts)


def _bits(runs: Records) -> str:
    largest = max(runs.values(FRACTION), key=float)
    chosen = runs.where(compressor__fraction=largest)
    true, paper = (
        average(chosen, lambda run, name=name: run.last(name)) for name in ("bpp/uplink", "paper/bpp/uplink")
    )
    assert true is not None
    return f"{true:.3g}" + ("" if paper is None or paper == true else f" ({paper:.3g})")


def _mean(records: Records, label: str, metric: str) -> float | None:
    def value(run: Run) -> float | None:
        if metric != ERROR:
            return run.last(metric)
        accuracy = run.last("test/accuracy")
        return None if accuracy is None else 1 - accuracy

    return average(records.where(label=label), value)


Beaten = dict[tuple[str, str, str, str], bool | None]
"""{(partition, k/d, method, baseline): whether the method beats the baseline there}."""


def _beaten(records: Records, metric: str, methods: Sequence[str], margin: float = 0.0) -> Beaten:
    """Whether each method's value, the better the lower, is below each baseline's by more than a margin."""
    return {
        (partition, fraction, method, other): less(
            own, None if (theirs := _mean(chosen, other, metric)) is None else theirs - margin
        )
        for partition in records.values("partition")
        for fraction in records.values(FRACTION)
        for chosen in [records.where(partition=partition, compressor__fraction=fraction)]
        for method in methods
        for own in [_mean(chosen, method, metric)]
        for other in (RANDK, WANGNI, INDUCED)
    }


def _everywhere(found: Beaten) -> str:
    """The verdict on "in all cases", and where it is not so."""
    wrong = _exceptions(found)
    return verdict(every(list(found.values()))) + (f": not against {wrong}" if wrong else "")


def _mostly(found: Beaten) -> str:
    """The verdict on "in most cases", in how many, and where not."""
    if every([one is not None for one in found.values()]) is not True:
        return ""
    won = sum(one is True for one in found.values())
    wrong = _exceptions(found)
    return f"{verdict(2 * won > len(found))}: {won} of {len(found)}" + (f", not against {wrong}" if wrong else "")


def _exceptions(found: Beaten) -> str:
    """The baselines that are not beaten, and where."""
    several = len({partition for partition, *_ in found}) > 1
    wrong: dict[str, list[str]] = {}
    for (partition, fraction, _, other), one in found.items():
        if one is False:
            wrong.setdefault(f"{other} ({partition})" if several else other, []).append(fraction)
    return " and ".join(f"{name} at k/d = {', '.join(fractions)}" for name, fractions in wrong.items())
