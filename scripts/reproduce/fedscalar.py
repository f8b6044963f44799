"""FedScalar (arXiv:2410.02260)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from scripts.reproduce.records import Folder, Records

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
    ["experiment=fedscalar/mnist_lenet"],
    "rounds=10 client.lr=0.03",
    METRICS,
    ["client.lr"],
    {"accuracy": "fedscalar_mnist_lenet.png"},
)
EXPERIMENTS = (DIGITS, TUNED, LENET)

FEDAVG, OWN, SHARED = "FedAvg", "FedScalar, per agent, Rademacher", "FedScalar, shared, Rademacher"
METHODS = (FEDAVG, "FedScalar, per agent, Gaussian", OWN, "FedScalar, shared, Gaussian", SHARED)
TEN = "FedScalar, per agent, Rademacher, 10 scalars"
ROUNDS = (600, 3000, 10000)


def page(folder: Folder) -> str:
    """docs/results/fedscalar.md."""
    digits, tuned, lenet = folder[DIGITS], folder[TUNED], folder[LENET]
    best, large = tuned.where(state="finished"), lenet.where(state="finished")
    return f"""\
# FedScalar

The paper's setting: 8x8 digits, 20 agents, a network of 233 parameters, 5 local steps on batches of 10, a rate of
0.01. The page is written by `make reproduce PAPER=fedscalar SCALE=paper`.

{_claims(digits, best, large)}

What the paper does not say: the downlink, which is FedAvg's, so that the total is at best half of FedAvg's; m, the
number of seeds, the initialisation, the scale of the pixels; anything after round 600. At that round all methods
are still inaccurate. A vector for all agents (shared, the paper's v1) keeps a noise of (d ± 1) ‖δ̄‖² per round; a
vector per agent (v2, v3) averages it. Rademacher vectors reduce this noise by the factor (d − 1)/(d + 1) = 0.991;
Proposition 3.1 claims more
(`tests/compressor/projections/test_projection.py::test_paper_proposition_3_1_does_not_hold`).

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

{_by_rate(lenet, (FEDAVG, OWN, TEN))}

{picture("Accuracy over rounds", "fedscalar_mnist_lenet.png", lenet)}
"""


def _claims(digits: Records, tuned: Records, lenet: Records) -> str:
    rows: list[tuple[str, str, Experiment | str]] = [
        (
            "an agent sends one scalar, a 233rd of FedAvg's uplink",
            f"{verdict(_a_233rd(tuned))}{_ratio(tuned)}",
            TUNED,
        ),
        ("it is as accurate as FedAvg after 600 rounds", verdict(_as_accurate(digits, 600)), DIGITS),
        ("and after 10,000 rounds, the paper's K", verdict(_as_accurate(digits, 10000)), DIGITS),
        ("it is as accurate with the best rate of each, for the same rounds", _best_rates(tuned), TUNED),
        (
            "it converges as 1/√K whatever the dimension (theorem 3.1)",
            _best_rates(lenet),
            LENET,
        ),
        ("Rademacher vectors reduce the variance of the estimate", _far_less(digits), DIGITS),
        (
            "they reduce it by (2/N²) Σ ‖δₙ‖² on every entry (proposition 3.1)",
            "no, by 2 ‖δ̄‖² in total",
            "tests/compressor/projections/test_projection.py::test_paper_proposition_3_1_does_not_hold",
        ),
    ]
    return claims(rows)


def _percent(value: float) -> str:
    return units.percent(value)


def _by_round(records: Records) -> str:
    def cell(index: int) -> Cell:
        return lambda runs: middle(runs.collect(lambda run: run.at(index, "test/accuracy")), _percent)

    columns: list[tuple[str, Cell]] = [(f"round {index:,}", cell(index)) for index in ROUNDS]
    columns += [
        ("uplink", last("bits/uplink", units.bits)),
        ("total", last("bits/total", units.bits)),
        ("variance of the estimate", _variance),
        ("rounds", rounds),
    ]
    return table("", [(method, records.where(label=method)) for method in METHODS], columns)


def _variance(runs: Records) -> str:
    """The mean over the evaluations up to round 10,000, which is about d for a shared vector."""
    return spread(runs.collect(lambda run: _mean_of(run.lines)), "{:.0f}".format)


def _mean_of(lines: object) -> float | None:
    assert isinstance(lines, list)
    values = [line["estimate/variance"] for line in lines if "estimate/variance" in line]
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


def _as_accurate(records: Records, index: int) -> bool | None:
    """Whether FedScalar with a vector per agent is at most a standard error of the seeds below FedAvg."""
    own, other = (
        records.where(label=name).collect(lambda run: run.at(index, "test/accuracy")) for name in (OWN, FEDAVG)
    )
    if not own or len(other) < 2:
        return None
    mean = sum(other) / len(other)
    deviation = (sum((value - mean) ** 2 for value in other) / (len(other) - 1)) ** 0.5
    return sum(own) / len(own) >= mean - deviation / len(other) ** 0.5


def _a_round(records: Records, method: str, metric: str) -> float | None:
    """The bits of a round, as a mean over runs."""
    return average(records.where(label=method), lambda run: (run.last(metric) or 0) / run.rounds)


def _a_233rd(records: Records) -> bool | None:
    found = [_a_round(records, name, "bits/uplink") for name in (FEDAVG, SHARED)]
    return None if found[0] is None or found[1] is None else round(found[0] / found[1]) == 233


def _ratio(records: Records) -> str:
    found = [_a_round(records, name, "bits/uplink") for name in (FEDAVG, SHARED, OWN)]
    found += [_a_round(records, name, "bits/total") for name in (FEDAVG, OWN)]
    known = [one for one in found if one]
    if len(known) < 5:
        return ""
    return (
        f": {known[0] / known[1]:.0f} for a shared vector, {known[0] / known[2]:.0f} with the seed of each agent's own;"
        f" with the downlink, {known[3] / known[4]:.3g}"
    )


def _far_less(records: Records) -> str:
    """Whether the Gaussian variance is larger than Rademacher's by more than its standard error over the seeds."""
    gauss, own = (records.where(label=name).collect(lambda run: _mean_of(run.lines)) for name in (METHODS[3], SHARED))
    if len(gauss) < 2 or len(own) < 2:
        return ""
    error = (stdev(gauss) ** 2 / len(gauss) + stdev(own) ** 2 / len(own)) ** 0.5
    gain = fmean(gauss) - fmean(own)
    return f"{verdict(gain > 2 * error)}: by {gain:.0f} ± {error:.0f} of {fmean(gauss):.0f}"


def _best_rates(records: Records) -> str:
    """Whether FedScalar, at its best rate, is less than a point below FedAvg at its own, over the seeds of both.

    A larger distance within two of its standard errors decides nothing; with one seed there is none to compare with.
    """
    seeds = [
        seed for seed in records.values("seed") if all(records.where(label=name, seed=seed) for name in (FEDAVG, OWN))
    ]
    common = replace(records, runs=[run for run in records if run.about["seed"] in seeds])
    rates = [_best_rate(common, method) for method in (FEDAVG, OWN)]
    pairs = [
        [_accuracy(common.where(seed=seed), method, rate) for method, rate in zip((FEDAVG, OWN), rates, strict=True)]
        for seed in seeds
    ]
    ends = [(theirs, own) for theirs, own in pairs if theirs is not None and own is not None]
    if not ends:
        return ""
    below = [theirs - own for theirs, own in ends]
    error = stdev(below) / len(below) ** 0.5 if len(below) > 1 else 0.0
    undecided = 0.01 <= fmean(below) <= 2 * error
    found = " where FedAvg has ".join(f"{100 * fmean(side):.1f} %" for side in reversed([*zip(*ends, strict=True)]))
    spread_of_seeds = f", {len(below)} seeds whose differences have a standard error of {100 * error:.1f} points"
    return (
        f"{'**not decided**' if undecided else verdict(fmean(below) < 0.01)}: {found}"
        f"{spread_of_seeds if len(below) > 1 else ', 1 seed'}"
    )
