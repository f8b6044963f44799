"""Adapters of a small language model: quality for the same true bits, both ways."""

# ruff: noqa: E501 (lines of a page)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import yaml

from scripts.reproduce.experiment import Experiment
from scripts.reproduce.markdown import Cell, made_with, picture, rounds, spread, table
from scripts.reproduce.records import Folder, Records
from scripts.reproduce.same_bits_search import COMMITTED, next_rate

METHODS = (
    "fedit", "topk", "eden_1", "eden_2", "powersgd", "ffa_lora", "rolora", "hetlora", "flexlora", "flora", "flasc",
    "flasc_update", "fedsa_lora", "decomfl", "fedkseed",
)  # fmt: skip
PERPLEXITY, ACCURACY, LOSS, BIAS = "test/perplexity", "test/accuracy", "test/loss", "adapter/bias"
RATE = "vars.lr"
TRIAL, SEEDS = "10", ("0", "1", "2")
METHODS_FOLDER = Path(__file__).resolve().parents[2] / "conf" / "experiment" / "fine_tuning" / "method"
METHOD = "experiment/fine_tuning/method@_global_"


@dataclass(frozen=True)
class Tuned(Experiment):
    """Rates of each method on one seed, then its three runs with the best of them.

    Attributes:
        rates: the first that are tried. trial_rounds, rounds: of a trial, and of a run.
        records: those to go on from.
    """

    rates: Sequence[float] = field(kw_only=True)
    trial_rounds: int = field(kw_only=True)
    rounds: int = field(kw_only=True)
    records: Callable[[Tuned], Records] = field(default=lambda tuned: COMMITTED[tuned], kw_only=True)

    def overrides(self, scale: str) -> Iterator[list[str]]:  # type: ignore[override]
        """All trials, then the first seed of every method, then the next seed."""
        if scale != "paper":
            yield from super().overrides(scale)
            return
        for method in METHODS:
            yield from self._trials(method)
        for seed in SEEDS:
            for method in METHODS:
                if rate := self.chosen(method, self.records(self)):
                    yield self._command(method, [rate], seed, self.rounds)

    def chosen(self, method: str, runs: Records) -> float | None:
        """The rate with the least loss in its trial; None: it is at the edge of those tried."""
        scores = self.scores(method, runs)
        best = max(scores, key=lambda rate: scores[rate], default=None)
        return best if best is not None and min(scores) < best < max(scores) else None

    def scores(self, method: str, runs: Records) -> dict[float, float]:
        """{rate: minus the loss at the end of its trial}."""
        own = [run for run in runs.where(label=label(method), seed=TRIAL) if run.about["state"] != "unfinished"]
        return {float(run.about[RATE]): -_or_infinite(run.last(LOSS)) for run in own}

    def _trials(self, method: str) -> Iterator[list[str]]:
        rates: Sequence[float] = self.rates
        tried: set[float] = set()
        while not tried.issuperset(rates):
            tried.update(rates)
            yield self._command(method, rates, TRIAL, self.trial_rounds)
            further = next_rate(self.scores(method, self.records(self)))
            rates = [] if further is None else [further]

    def _command(self, method: str, rates: Sequence[float], seed: str, rounds: int) -> list[str]:
        tried = ",".join(f"{rate:g}" for rate in rates)
        return [*self.commands[0].split(), f"{METHOD}={method}", f"{RATE}={tried}", f"seed={seed}", f"rounds={rounds}"]


def _tuned(name: str, metrics: Sequence[str], curves: dict[str, str], rates: Sequence[float], rounds: int) -> Tuned:
    return Tuned(
        name,
        [f"-m experiment=fine_tuning/{name}"],
        f"rounds=2 eval_every=1 {METHOD}={','.join(METHODS)}",
        [*metrics, LOSS, "bits/uplink", "bits/total"],
        [RATE],
        curves=curves,
        keep_failed=True,
        rates=rates,
        trial_rounds=10,
        rounds=rounds,
    )


ROLES = _tuned("shakespeare_lora", [PERPLEXITY, ACCURACY, BIAS], {}, (0.003, 0.01, 0.03), 20)
SPEAKS = _tuned("who_speaks", [ACCURACY, BIAS], {}, (0.0003, 0.001, 0.003), 20)
EXPERIMENTS = (ROLES, SPEAKS)


def label(method: str) -> str:
    """A method's name in tables."""
    return str(yaml.safe_load((METHODS_FOLDER / f"{method}.yaml").read_text(encoding="utf-8"))["label"])


def page(folder: Folder) -> str:
    """docs/results/fine_tuning.md."""
    return f"""\
# Fine-tuning a small language model

Methods that fine-tune low-rank adapters, and codecs on adapters, by true bits in both directions: values, places, seeds and
the downlink. The page is written by `make reproduce PAPER=fine_tuning SCALE=paper`; `python scripts/pretrain_small.py` makes
the network first ([how](../fine_tuning.md#a-run)).

The network is a byte-level Llama of 689,664 parameters that has learnt the first half of tinyshakespeare. It is frozen, on no
link, and the same for all seeds. What it shows is the order of bits and quality on a small task; a network of this size is no
language model in the papers' sense, and rates and ranks need not carry over to larger ones.

## Roles

{made_with(ROLES, folder[ROLES])}

The next byte, for eight roles of the second half: a role is a client. Adapters of rank 4 on all linear layers, 34,816 numbers;
5 steps of Adam of batch 4 a round with rate 0.01, moments fresh each round. No rate is searched for a method by itself, and with one seed differences of 0.01 may be noise.
FedSA-LoRA's clients keep B, and each is judged by its own text; the others have one model. FLASC's model is the masked one.
DeComFL and FedKSeed train B alone. Runs are of 10 rounds of the experiment's 50; with more rounds they go on.

The bias of FedAvg of both factors (`adapter/bias`, in the last round) is what the mean of B times that of A misses of the mean
of B A, as a share of the exact step.

{_table(folder[ROLES], PERPLEXITY, "perplexity", 1)}

{picture("Perplexity against bits", "fine_tuning_roles.png", folder[ROLES])}

## Who speaks

{made_with(SPEAKS, folder[SPEAKS])}

Which of four roles says 128 bytes: adapters of rank 8 and a head on the last position, 4 clients with equal shares of the windows;
the largest class has 34.0 % of the test windows. Trained centrally, adapter and head reach more than ten points above it
([how](../fine_tuning.md#who-speaks)).

{_table(folder[SPEAKS], ACCURACY, "accuracy, %", 100)}

{picture("Accuracy against bits", "fine_tuning_who.png", folder[SPEAKS])}
"""


def _table(runs: Records, metric: str, title: str, factor: float) -> str:
    """A row for each method, the fewest bits first: quality at the first and the last evaluation, the bits of a round."""

    def mean(own: Records, bits: str) -> float:
        return fmean(run.lines[-1][bits] / run.lines[-1]["round"] for run in own)

    def of_a_round(bits: str) -> Cell:
        return lambda own: _shown(1e-6 * mean(own, bits))

    def fewer(own: Records) -> str:
        dense = _begun(runs.where(label="FedIT"))
        return _shown(mean(dense, "bits/total") / mean(own, "bits/total")) if dense else ""

    rows = [(label, own) for label in runs.values("label") if (own := _begun(runs.where(label=label)))]
    rows.sort(key=lambda row: mean(row[1], "bits/total"))
    columns: list[tuple[str, Cell]] = [
        ("runs", lambda own: str(len(own))),
        ("rounds", rounds),
        (f"{title}, before", lambda own: spread(own.collect(lambda run: run.at(0, metric)), _shown, factor)),
        ("after", lambda own: spread(own.collect(lambda run: run.last(metric)), _shown, factor)),
        ("Mbit up a round", of_a_round("bits/uplink")),
        ("both ways", of_a_round("bits/total")),
        ("FedIT's bits over its own", fewer),
        ("bias", lambda own: spread(own.collect(lambda run: run.last(BIAS)), _shown)),
    ]
    return table("method", rows, columns)


def _begun(runs: Records) -> Records:
    """Those that have evaluated a round."""
    return replace(runs, runs=[run for run in runs if run.lines and run.lines[-1]["round"] > 0])


def _or_infinite(loss: float | None) -> float:
    return math.inf if loss is None or math.isnan(loss) else loss


def _shown(value: float) -> str:
    return f"{value:.4g}"
