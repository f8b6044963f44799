"""FedScalar (arXiv:2410.02260)."""

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from fedcomp.display import units
from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import (
    Cell,
    average,
    claims,
    last,
    made_with,
    middle,
    picture,
    rounds,
    spread,
    table,
    verdict,
)
from scripts.reproduce.records import Folder, Records, Run

METRICS = ("test/accuracy", "train/loss", "estimate/variance", "bits/uplink", "bits/downlink", "bits/total")
DIGITS = Experiment(
    "fedscalar-digits",
    [f"experiment=fedscalar/digits rounds=10000 eval_every=100 seed={seeds}" for seeds in ("0", "1,2,3,4")],
    "rounds=1500 seed=0,1,2",
    METRICS,
    curves={"test/accuracy": "fedscalar_digits.png"},
)
TUNED = Experiment(
    "fedscalar-digits-tuned",
    [f"experiment=fedscalar/digits_tuned seed={seeds}" for seeds in ("0", "1,2")],
    "rounds=1000 seed=0 client.lr=0.01,0.1",
    METRICS,
    ["client.lr"],
    {"accuracy": "fedscalar_digits_tuned.png"},
)
LENET = Experiment(
    "fedscalar-mnist-lenet",
    [f"experiment=fedscalar/mnist_lenet seed={seeds}" for seeds in ("0", "1,2")],
    "rounds=10 client.lr=0.03 seed=0",
    METRICS,
    ["client.lr"],
    {"accuracy": "fedscalar_mnist_lenet.png"},
)
EXPERIMENTS = (DIGITS, TUNED, LENET)

FEDAVG, OWN, SHARED = "FedAvg", "FedScalar, per agent, Rademacher", "FedScalar, shared, Rademacher"
GAUSSIAN = "FedScalar, shared, Gaussian"
METHODS = (FEDAVG, "FedScalar, per agent, Gaussian", OWN, GAUSSIAN, SHARED)
SHARED_METHODS = {SHARED: "Rademacher", GAUSSIAN: "Gaussian"}
"""The paper's own: label -> distribution."""
TEN = "FedScalar, per agent, Rademacher, 10 scalars"
ROUNDS = (600, 3000, 10000)
OPEN = "not decided"
"""Of a difference of no more than two standard errors."""


def page(folder: Folder) -> str:
    """docs/results/fedscalar.md."""
    digits, tuned, lenet = folder[DIGITS], folder[TUNED], folder[LENET]
    best = tuned.where(state="finished")
    return f"""\
# FedScalar

The paper's setting: 8x8 digits, 20 agents, a network of 233 parameters, 5 local steps on batches of 10, a rate of
0.01. The page is written by `make reproduce PAPER=fedscalar SCALE=paper`.

{_claims(digits)}

± is the standard error of the differences between runs of one seed. What the paper does not say: the downlink, which is
FedAvg's, so that the total is at best half of FedAvg's; m, the number of seeds, the initialisation, the scale of the
pixels; anything after round 600. At that round all methods are still inaccurate. The paper's vector for all agents
(shared, version 1) keeps a noise of (d ± 1) ‖δ̄‖² per round; a vector per agent (versions 2 and 3) averages it, and
sends its agent's seed too, 64 bits more. Rademacher vectors reduce this noise by the factor (d − 1)/(d + 1) = 0.991,
too little for five seeds to show{_variances(digits)}.

## The paper's rate

{made_with(DIGITS, digits)}

Median over the seeds (smallest to largest) of the test accuracy in percent:

{_by_round(digits)}

{picture("FedScalar on the digits", "fedscalar_digits.png", digits)}

## The best rate of each

{made_with(TUNED, tuned)}

Test accuracy in percent at the last round of finished runs, in brackets how many diverged. A rate is chosen by the
mean over seeds.

{_by_rate(tuned, (FEDAVG, OWN, SHARED))}

{_to_target(best)}

{picture("Accuracy over the learning rate", "fedscalar_digits_tuned.png", tuned)}

## LeNet-5 on MNIST: 61,706 parameters

{made_with(LENET, lenet)}

The variance of one projection is d times the squared length of the update, so that the rate must fall as d grows.

{_by_rate(lenet, (FEDAVG, OWN, SHARED, TEN))}

{picture("Accuracy over rounds", "fedscalar_mnist_lenet.png", lenet)}
"""


def _claims(digits: Records) -> str:
    """The paper's method has one vector for all agents, from a Gaussian or a Rademacher distribution."""
    level = '"nearly the same level of accuracy after round 600" as FedAvg (section IV, figure 3: α = 0.01, K = 10,000)'
    closed = "tests/compressor/projections/test_projection.py::test_paper_proposition_3_1_does_not_hold"
    rows: list[tuple[str, str, Experiment | str]] = [
        (
            '"communicates only a single scalar" in the upload phase, FedAvg "a vector of size 233" (section IV)',
            _fewer_bits(digits),
            DIGITS,
        ),
        (f"{level}: at round 600", _same_level(digits, 600), DIGITS),
        ("the same: at round 10,000", _same_level(digits, 10000), DIGITS),
        (
            'Rademacher vectors exhibit lower variance, which "leads to better performance during the training phase" '
            "(section IV, figure 2)",
            _better_training(digits),
            DIGITS,
        ),
        (
            '"the variance during aggregation can be reduced" by Rademacher vectors (section III-A)',
            "yes, by the factor (d − 1)/(d + 1)",
            closed,
        ),
        ("by (2/N²) Σ ‖δₙ‖² on every entry (proposition 3.1)", "no, by 2 ‖δ̄‖² in total", closed),
        ('"a rate of O(1/√K)" for α = 1/√K, by a bound with the term L (d + 4) S G²/√K (theorem 3.1)', "", ""),
    ]
    return claims(rows)


def _below(
    records: Records, method: str, index: int, metric: str = "test/accuracy", other: str = FEDAVG
) -> list[float]:
    """Of each seed, by how much the method's value is below another's."""
    pairs = [
        [average(records.where(label=name, seed=seed), lambda run: run.at(index, metric)) for name in (other, method)]
        for seed in records.values("seed")
    ]
    return [theirs - own for theirs, own in pairs if theirs is not None and own is not None]


def _error(values: Sequence[float]) -> float:
    return stdev(values) / len(values) ** 0.5


def _same_level(records: Records, index: int) -> str:
    """Whether both distributions are at most a point below FedAvg; open where two standard errors say neither."""
    found = {name: _below(records, label, index) for label, name in SHARED_METHODS.items()}
    if any(len(one) < 2 for one in found.values()):
        return ""
    means = [(fmean(one), _error(one)) for one in found.values()]
    holds = None
    if any(mean > max(0.01, 2 * error) for mean, error in means):
        holds = False
    elif all(mean <= 0.01 for mean, _ in means):
        holds = True
    distances = " and ".join(
        f"{100 * abs(mean):.1f} ± {100 * error:.1f} points {'below' if mean > 0 else 'above'} ({name})"
        for name, (mean, error) in zip(found, means, strict=True)
    )
    theirs = average(records.where(label=FEDAVG), lambda run: run.at(index, "test/accuracy"))
    assert theirs is not None
    return f"{verdict(holds) or OPEN}: {distances}, where FedAvg has {100 * theirs:.1f} %"


def _better_training(records: Records) -> str:
    """Whether the training loss at the last round is lower with Rademacher vectors; open within two errors."""
    lower = _below(records, SHARED, ROUNDS[-1], "train/loss", GAUSSIAN)
    if len(lower) < 2:
        return ""
    mean, error = fmean(lower), _error(lower)
    holds = mean > 0 if abs(mean) > 2 * error else None
    way = "lower" if mean > 0 else "higher"
    return f"{verdict(holds) or OPEN}: a training loss {way} by {abs(mean):.2g} ± {error:.2g}"


def _fewer_bits(records: Records) -> str:
    up, total = (
        [average(records.where(label=name), lambda run, of=of: _a_round(run, of)) for name in (FEDAVG, SHARED)]
        for of in ("bits/uplink", "bits/total")
    )
    if None in up or None in total:
        return ""
    ratios = [theirs / own for theirs, own in (up, total)]
    return (
        f"{verdict(round(ratios[0]) == 233)}: {ratios[0]:.0f} times fewer bits up; with the downlink, {ratios[1]:.3g}"
    )


def _a_round(run: Run, metric: str) -> float:
    """The bits of a round."""
    return (run.last(metric) or 0) / run.rounds


def _variances(records: Records) -> str:
    """The variance of the estimate of both distributions, mean ± standard error over the seeds."""
    found = [records.where(label=label).collect(_variance) for label in (GAUSSIAN, SHARED)]
    if any(len(one) < 2 for one in found):
        return ""
    gauss, own = (f"{fmean(one):.0f} ± {_error(one):.0f}" for one in found)
    return f": the variance of the estimate is {gauss} (Gaussian) and {own} (Rademacher)"


def _by_round(records: Records) -> str:
    def cell(index: int) -> Cell:
        return lambda runs: middle(runs.collect(lambda run: run.at(index, "test/accuracy")), units.percent)

    columns: list[tuple[str, Cell]] = [(f"round {index:,}", cell(index)) for index in ROUNDS]
    columns += [
        ("uplink", last("bits/uplink", units.bits)),
        ("total", last("bits/total", units.bits)),
        ("variance of the estimate", lambda runs: spread(runs.collect(_variance), "{:.0f}".format)),
        ("rounds", rounds),
    ]
    return table("", [(method, records.where(label=method)) for method in METHODS], columns)


def _variance(run: Run) -> float | None:
    """The mean over the evaluations of the estimate's variance, which is about d for a shared vector."""
    values = [line["estimate/variance"] for line in run.lines if "estimate/variance" in line]
    return sum(values) / len(values) if values else None


def _by_rate(records: Records, methods: tuple[str, ...]) -> str:
    """Accuracies of finished runs, a column for each rate; where runs diverged a cell says how many."""

    def finished(runs: Records) -> Records:
        return runs.where(state="finished")

    def cell(rate: str) -> Cell:
        def of(runs: Records) -> str:
            own = runs.where(client__lr=rate)
            found = finished(own).collect(lambda run: run.last("test/accuracy"))
            failed = len(own.where(state="failed"))
            if failed == len(own):
                return "diverged" if failed else ""
            note = f" ({failed} of {len(own)} diverged)" if failed else ""
            return spread(found, "{:.2f}".format, 100) + note

        return of

    columns: list[tuple[str, Cell]] = [(f"rate {rate}", cell(rate)) for rate in _rates(records)]
    columns += [
        ("uplink", lambda runs: spread(finished(runs).collect(lambda run: run.last("bits/uplink")), units.bits)),
        ("rounds", lambda runs: rounds(finished(runs)) if finished(runs) else ""),
        ("seeds", lambda runs: str(len(runs.values("seed")))),
    ]
    return table("", [(method, records.where(label=method)) for method in methods], columns)


def _to_target(records: Records) -> str:
    """At each method's best rate, the bits until 90 % of FedAvg's best accuracy."""
    best = {method: _best_rate(records, method) for method in (FEDAVG, OWN, SHARED)}
    goal = _accuracy(records, FEDAVG, best[FEDAVG])
    if goal is None:
        return ""
    target = 0.9 * goal

    def until(metric: str, show: Callable[[float], str]) -> Cell:
        def of(runs: Records) -> str:
            found = runs.collect(lambda run: next((x[metric] for x in run.lines if x["test/accuracy"] >= target), None))
            return spread(found, show) if len(found) == len(runs) else f"{len(found)} of {len(runs)} seeds reach it"

        return of

    rows = [
        (f"{method}, rate {rate}", records.where(label=method, client__lr=rate))
        for method, rate in best.items()
        if rate
    ]
    columns = [
        ("rounds", until("round", "{:.0f}".format)),
        ("uplink", until("bits/uplink", units.bits)),
        ("total", until("bits/total", units.bits)),
    ]
    return f"Until {100 * target:.1f} % (0.9 times FedAvg's best):\n\n" + table("best rate", rows, columns)


def _rates(records: Records) -> list[str]:
    return sorted(records.values("client.lr"), key=float)


def _accuracy(records: Records, method: str, rate: str | None) -> float | None:
    own = records.where(label=method) if rate is None else records.where(label=method, client__lr=rate)
    return average(own, lambda run: run.last("test/accuracy"))


def _best_rate(records: Records, method: str) -> str | None:
    found = {rate: value for rate in _rates(records) if (value := _accuracy(records, method, rate)) is not None}
    return max(found, key=lambda rate: found[rate]) if found else None
