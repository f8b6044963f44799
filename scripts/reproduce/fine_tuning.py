"""Adapters of a small language model: quality for the same true bits, both ways."""

# ruff: noqa: E501 (lines of a page)

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from fedcomp.display import units
from scripts.reproduce.clocks import NETWORKS, clock_metric
from scripts.reproduce.curves import draw_curves
from scripts.reproduce.fine_tuning_search import (
    ACCURACY,
    BIAS,
    CLOCKS,
    METHODS,
    PERPLEXITY,
    RATE,
    SEEDS,
    at_rates,
    label,
    tuned,
)
from scripts.reproduce.markdown import Cell, average, made_with, measured, picture, rounds, table
from scripts.reproduce.records import Folder, Records, Run

ROLES = tuned("shakespeare_lora", [PERPLEXITY, ACCURACY, BIAS], (0.003, 0.01, 0.03), 20)
SPEAKS = at_rates(
    "who_speaks",
    [ACCURACY, BIAS],
    {
        0.001: (
            "fedit",
            "topk",
            "eden_1",
            "powersgd",
            "ffa_lora",
            "flora",
            "eden_2",
            "rolora",
            "fedsa_lora",
            "flexlora",
        ),
        0.003: ("flasc_update", "flasc"),
    },
)
EXPERIMENTS = (ROLES, SPEAKS)
DENSE = "fedit"
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Of FedIT's bits in both directions: where methods are compared."""
SAID = {
    "topk": ("10 × (a tenth of the values)", "the share of values"),
    "eden_1": ("32 × (a bit for a float)", "the bits of a value"),
    "eden_2": ("16 × (two bits for a float)", "the bits of a value"),
    "ffa_lora": ("2 × (one factor of two)", "the paper"),
    "rolora": ("2 × (one factor of two a round)", "the paper"),
    "fedsa_lora": ("2 × (one factor of two)", "the paper"),
    "flasc": ("10 × (a tenth of the values up)", "the paper, up to"),
    "flasc_update": ("10 × (a tenth of the values up)", "the paper, up to"),
    "fedkseed": ("under 18 kilobytes a round", "the paper's title"),
}
"""What is said of a method's messages, and by whom or what."""
LARGEST, WINDOWS = 0.34, 156
"""Of who speaks: the share of the largest class in the test windows, and how many there are."""
_shown, _short = "{:.4g}".format, "{:.3g}".format


def page(folder: Folder) -> str:
    """docs/results/fine_tuning.md."""
    roles, speaks = _runs(folder[ROLES]), _runs(folder[SPEAKS])
    return f"""\
# Fine-tuning a small language model

Methods that fine-tune low-rank adapters, and codecs on adapters, by true bits in both directions: values, places, seeds and
the downlink. The page is written by `make reproduce PAPER=fine_tuning SCALE=paper`; `python scripts/pretrain_small.py` makes
the network first ([how](../fine_tuning.md#a-run)).

The network is a byte-level Llama of 689,664 parameters that has learnt the first half of tinyshakespeare. It is frozen, on no
link, and the same for all seeds. What it shows is the order of bits and quality on a small task; a network of this size is no
language model in the papers' sense, and rates and ranks need not carry over to larger ones.

How methods are compared:

- A rate of the roles is searched for each method on another seed, for {ROLES.trial_rounds} rounds: of clients' Adam, of FLASC's server (its clients have 0.01), of
  the steps of DeComFL and FedKSeed. Rates are a factor of about 3 apart, and are added until the best has one on either side.
- The rates of the roles, but those of FedSRD and LoRA-FAIR, were searched on a base that another machine had trained (perplexity
  4.830, not 4.803).
- Of who speaks, one rate serves all methods: 0.001, and 0.003 for FLASC's server. For some 300 local steps no method is above the
  largest class, so that a search would need whole runs: a method that has not learnt may have needed another rate.
- Runs of the roles have {ROLES.rounds} rounds, of who speaks 60; a row with fewer says how many. Each method has the same local steps.
- ± is the sample standard deviation over seeds; of a difference to FedIT, which is taken seed by seed, it is the standard error.

## Roles

{made_with(ROLES, folder[ROLES])}

The next byte, for eight roles of the second half: a role is a client. Adapters of rank 4 on all linear layers, 34,816 numbers;
5 steps of Adam of batch 4 a round, moments fresh each round.
FedSA-LoRA's clients keep B, and each is judged by its own text; the others have one model. FLASC's model is the masked one: by
size (the paper's mask) it has no entry of B before these outgrow A's, and is the base itself until then; by what has moved it
learns at once.
DeComFL and FedKSeed train B alone.

The bias of FedAvg of both factors (`adapter/bias`, in the last round) is what the mean of B times that of A misses of the mean
of B A, as a share of the exact step.

{_table(roles, PERPLEXITY, "perplexity", 1)}

{picture("Perplexity against bits", PICTURES[ROLES.name], roles)}

### For the same bits

Perplexity at the last evaluation by which no more bits had been sent in both directions: shares of the bits that FedIT sends in all its
rounds. Empty: a method's first evaluation after round 0 is later.

{_at_equal_bits(roles, PERPLEXITY, 1)}

### What becomes of the savings

What is said of one message, and what remains when places, seeds, scales and the downlink count: how many times fewer bits a round
than FedIT's, and how much worse the perplexity is in the last round.

{_savings(roles, PERPLEXITY)}

{_seconds(roles, PERPLEXITY)}

## Who speaks

{made_with(SPEAKS, folder[SPEAKS])}

Which of four roles says 128 bytes: adapters of rank 8 and a head on the last position, 4 clients with equal shares of the windows,
10 steps of Adam of batch 16 a round; the largest class has 34.0 % of the {WINDOWS} test windows, whose number alone gives an accuracy of
one seed a standard error of 4 points. Trained centrally, adapter and head reach more than ten points above the largest class
([how](../fine_tuning.md#who-speaks)).

{_table(speaks, ACCURACY, "accuracy, %", 100)}

{_not_learnt(speaks) or _seconds(speaks, ACCURACY)}

{picture("Accuracy against bits", PICTURES[SPEAKS.name], speaks)}

## The papers' own models

Not run here: no weights are on this machine. The commands with the papers' settings, for a folder with the weights:

| experiment | command |
| --- | --- |
| DeComFL, OPT-125M on SST-2 | `fedcomp experiment=fine_tuning/opt125m_sst2 model.path=opt-125m dataset.path=sst2.jsonl dataset.tokenizer=opt-125m` |
| FedIT as in Flower's flowertune-llm, OpenLLaMA-3B on Alpaca | `fedcomp experiment=fine_tuning/flowertune model.path=DIR dataset.tokenizer=DIR dataset.path=alpaca.jsonl` |
"""


def _not_learnt(runs: Records) -> str:
    """A warning where no method's mean accuracy is above the largest class by two standard errors of the test windows."""
    best = max((fmean(own.collect(lambda run: run.last(ACCURACY))) for _, own in _rows(runs)), default=None)
    error = (LARGEST * (1 - LARGEST) / WINDOWS) ** 0.5
    if best is None or best > LARGEST + 2 * error:
        return ""
    return (
        f"No method is above the largest class by more than two standard errors of {WINDOWS} test windows "
        f"({200 * error:.1f} points): the task is not learnt yet, and the rows cannot be ranked."
    )


PICTURES = {ROLES.name: "fine_tuning_roles.png", SPEAKS.name: "fine_tuning_who.png"}


def draw(folder: Folder, place: Path) -> None:
    """Quality against bits and rounds, of the runs after the search."""
    for experiment, metric in ((ROLES, PERPLEXITY), (SPEAKS, ACCURACY)):
        draw_curves(_runs(folder[experiment]), metric, place / PICTURES[experiment.name])


def _runs(records: Records) -> Records:
    """The runs after the search that have evaluated a round."""
    found = [one for one in records if one.about["seed"] in SEEDS and one.lines and one.lines[-1]["round"] > 0]
    return replace(records, runs=found)


def _rows(runs: Records) -> list[tuple[str, Records]]:
    """Each method with its runs, the fewest bits a round first."""
    rows = [(name, runs.where(label=name)) for name in runs.values("label")]
    return sorted(rows, key=lambda row: _a_round(row[1], "bits/total"))


def _a_round(own: Iterable[Run], metric: str) -> float:
    """The mean of what adds up from round to round."""
    return fmean(run.lines[-1][metric] / run.lines[-1]["round"] for run in own)


def _table(runs: Records, metric: str, title: str, factor: float) -> str:
    """A row for each method, the fewest bits first: quality at the first and the last evaluation, the bits of a round."""

    def of_a_round(bits: str) -> Cell:
        return lambda own: _shown(1e-6 * _a_round(own, bits))

    columns: list[tuple[str, Cell]] = [
        ("rate", lambda own: ", ".join(own.values(RATE))),
        ("seeds", lambda own: str(len(own))),
        ("rounds", rounds),
        (f"{title}, before", lambda own: measured(own.collect(lambda run: run.at(0, metric)), _shown, factor)),
        ("after", lambda own: measured(own.collect(lambda run: run.last(metric)), _shown, factor)),
        ("Mbit up a round", of_a_round("bits/uplink")),
        ("both ways", of_a_round("bits/total")),
        ("bias", lambda own: measured(own.collect(lambda run: run.last(BIAS)), _shown)),
    ]
    return table("method", _rows(runs), columns)


def _at_equal_bits(runs: Records, metric: str, factor: float) -> str:
    dense = runs.where(label=label(DENSE))
    if not dense:
        return ""
    whole = fmean(run.lines[-1]["bits/total"] for run in dense)

    def by(limit: float) -> Cell:
        return lambda own: measured(own.collect(lambda run: _by(run, limit, metric)), _shown, factor)

    columns = [(f"{1e-6 * share * whole:.3g} Mbit ({share:.0%})", by(share * whole)) for share in SHARES]
    return table("method", _rows(runs), columns)


def _by(run: Run, limit: float, metric: str) -> float | None:
    """The metric at the last evaluation by which no more bits were sent; None: before that of the first rounds."""
    return next((one.get(metric) for one in reversed(run.lines) if 0 < one["bits/total"] <= limit), None)


def _seconds(runs: Records, metric: str) -> str:
    """Seconds of a round and to half of FedIT's gain, on both networks; nothing where no run has times."""
    dense = runs.where(label=label(DENSE))
    before, after = average(dense, lambda run: run.at(0, metric)), average(dense, lambda run: run.last(metric))
    if before is None or after is None or not runs.collect(lambda run: run.last(clock_metric(*CLOCKS[0]))):
        return ""
    target, gain = (before + after) / 2, after - before

    def a_round(time: str) -> Cell:
        return lambda own: measured(
            own.collect(lambda run: float(_short(_a_round([run], time))) if time in run.lines[-1] else None), _short
        )

    def to_target(name: str) -> Cell:
        def value(run: Run) -> float | None:
            return next((line.get(name) for line in run.lines if (line[metric] - target) * gain >= 0), None)

        return lambda own: (
            measured([float(_short(one)) for one in found], _short)
            if len(found := own.collect(value)) == len(own)
            else ""
        )

    columns: list[tuple[str, Cell]] = [(f"round of {_shown(target)}", to_target("round"))]
    for network, seconds in CLOCKS:
        time = clock_metric(network, seconds)
        columns += [(f"{NETWORKS[network]}, a round", a_round(time)), (f"to {_shown(target)}", to_target(time))]
    return f"""\
### Seconds on two networks

[The clock](../network.md) times what was sent, without the cost of gradients: seconds a round, and to the first evaluation with half
of FedIT's gain. Empty: a seed has not reached it, or a run did not record its traffic.

{table("method", _rows(runs), columns)}"""


def _savings(runs: Records, metric: str) -> str:
    dense = runs.where(label=label(DENSE))
    rows = [(one, runs.where(label=label(one))) for one in METHODS if one in SAID]
    rows = [(one, own) for one, own in rows if own]
    if not dense or not rows:
        return ""

    def fewer(own: Records, bits: str) -> str:
        return f"{_shown(_a_round(dense, bits) / _a_round(own, bits))} ×"

    lines = [
        "| method | said | by | up | both ways | perplexity above FedIT's |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for method, own in rows:
        said, who = SAID[method]
        apart = "judged by each client's own text" if method == "fedsa_lora" else _above(own, dense, metric)
        lines.append(
            f"| {label(method)} | {said} | {who} | {fewer(own, 'bits/uplink')} | {fewer(own, 'bits/total')} | {apart} |"
        )
    return "\n".join(lines)


def _above(own: Records, dense: Records, metric: str) -> str:
    """The mean over seeds that both have of the difference in the last round, ± its standard error."""
    pairs = [
        (run.last(metric), other.last(metric))
        for run in own
        for other in dense
        if run.about["seed"] == other.about["seed"]
    ]
    apart = [one - other for one, other in pairs if one is not None and other is not None]
    if not apart:
        return ""
    if len(apart) == 1:
        return f"{_shown(apart[0])} (one seed)"
    return units.mean_and_deviation(fmean(apart), stdev(apart) / len(apart) ** 0.5)
