"""The fine-tuning experiments: which rate each method gets, and the runs that follow."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from scripts.reproduce.clocks import clock_metric
from scripts.reproduce.experiment import Command, Experiment
from scripts.reproduce.records import Records
from scripts.reproduce.same_bits_search import COMMITTED, next_rate

METHODS = (
    "fedit", "topk", "eden_1", "eden_2", "powersgd", "ffa_lora", "rolora", "hetlora", "flexlora", "lora_fair", "flora",
    "fedsrd", "flasc", "flasc_update", "fedsa_lora", "decomfl", "fedkseed",
)  # fmt: skip
PERPLEXITY, ACCURACY, LOSS, BIAS = "test/perplexity", "test/accuracy", "test/loss", "adapter/bias"
CLOCKS = (("symmetric_10", 0.0), ("cell_20", 0.0))
RATE = "vars.lr"
TRIAL, SEEDS = "10", ("0", "1", "2")
METHODS_FOLDER = Path(__file__).resolve().parents[2] / "conf" / "experiment" / "fine_tuning" / "method"
METHOD = "experiment/fine_tuning/method@_global_"
BEFORE = (
    Path(os.environ.get("FEDCOMP_DATA", "~/.cache/fedcomp")) / "shakespeare_llama_660e13be",
    "scripts/pretrain_small.py",
)
"""The network that all runs start from, and what makes it."""
EACH = (LOSS, "bits/uplink", "bits/total", *(clock_metric(*clock) for clock in CLOCKS))
"""Of each evaluation, what the records of all these runs keep."""


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
    records: "Callable[[Tuned], Records]" = field(default=lambda tuned: COMMITTED[tuned], kw_only=True)

    def overrides(self, scale: str) -> Iterator[Command]:
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

    def _trials(self, method: str) -> Iterator[Command]:
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


def tuned(name: str, metrics: Sequence[str], rates: Sequence[float], rounds: int) -> Tuned:
    """An experiment of conf/experiment/fine_tuning whose rates are searched.

    Args:
        metrics: of each evaluation, beside the loss, bits and times. rates: the first that are tried. rounds: of a run.
    """
    return Tuned(
        name,
        [f"-m experiment=fine_tuning/{name}"],
        _small(METHODS),
        [*metrics, *EACH],
        [RATE],
        rates=rates,
        before=BEFORE,
        clocks=CLOCKS,
        trial_rounds=10,
        rounds=rounds,
    )


def at_rates(name: str, metrics: Sequence[str], rates: Mapping[float, Sequence[str]]) -> Experiment:
    """An experiment of conf/experiment/fine_tuning with rates that are given.

    Args:
        metrics: of each evaluation, beside the loss, bits and times. rates: the methods of each rate.
    """
    commands = [
        f"-m experiment=fine_tuning/{name} {METHOD}={','.join(methods)} {RATE}={rate:g} seed={seed}"
        for seed in SEEDS
        for rate, methods in rates.items()
    ]
    small = _small([method for methods in rates.values() for method in methods])
    return Experiment(name, commands, small, [*metrics, *EACH], [RATE], before=BEFORE, clocks=CLOCKS)


def _small(methods: Sequence[str]) -> str:
    return f"rounds=2 eval_every=1 {METHOD}={','.join(methods)}"


def label(method: str) -> str:
    """A method's name in tables."""
    return str(yaml.safe_load((METHODS_FOLDER / f"{method}.yaml").read_text(encoding="utf-8"))["label"])


def _or_infinite(loss: float | None) -> float:
    return math.inf if loss is None or math.isnan(loss) else loss
