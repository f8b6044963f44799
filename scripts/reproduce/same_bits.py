"""The five papers' methods and their neighbours: accuracy for the same bits in both directions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scripts.reproduce.difference import ERRORS
from scripts.reproduce.markdown import Cell, made_with
from scripts.reproduce.records import Folder, Records, Run
from scripts.reproduce.same_bits_picture import draw_curves, picture
from scripts.reproduce.same_bits_rows import GROUP, ROWS, Row
from scripts.reproduce.same_bits_search import (
    ACCURACY,
    LOCAL_STEPS,
    NEAR_CHANCE,
    RATES,
    SEEDS,
    STEPS,
    Search,
    Task,
    chosen,
    final,
    trials,
)
from scripts.reproduce.same_bits_tables import leaders, results

PERCEPTRON = "A perceptron on the 8x8 digits, 2,410 parameters; 10 clients with Dirichlet(0.3) classes."
LENET = "LeNet-5, 61,706 parameters; 10 clients with Dirichlet(0.3) classes."
LSTM = (
    "The next of 80 characters, after each of a window's 20, by a small LSTM, 24,192 parameters; ten of Shakespeare's "
    "roles are the clients, with 2,000 windows each."
)
TASKS = (
    Task("digits", "Digits", PERCEPTRON, 0.137, 85, 197),
    Task("fashion_mnist", "Fashion-MNIST", LENET, 0.1, 75, 10_000),
    Task("mnist", "MNIST", LENET, 0.114, 85, 10_000),
    Task("shakespeare", "Shakespeare", LSTM, 0.189, 40, 99_620, classes=False, lr=10),
)
SEARCHES = tuple(
    Search(
        f"same_bits_{task.name}",
        [f"experiment=neighbours/same_bits {GROUP}/task@_global_={task.name}"],
        None,
        [ACCURACY, "bits/uplink", "bits/total"],
        [*RATES, *STEPS],
        task=task,
    )
    for task in TASKS
)
EXPERIMENTS = SEARCHES


def page(folder: Folder) -> str:
    """docs/results/same_bits.md."""
    tasks = "\n\n".join(_searched(search, folder[search]) for search in SEARCHES)
    steps = ", ".join(map(str, LOCAL_STEPS[:-1])) + f" or {LOCAL_STEPS[-1]}"
    return f"""\
# Accuracy for the same bits

One method of each family, the five papers' and their [neighbours](neighbours.md), with the same budget of true bits in
both directions. The page is written by `make reproduce PAPER=same_bits SCALE=paper`; `scripts/compare.py` adds
[a row of yours](../tutorial.md#among-thirty-others).

Bits are those of all clients' messages, with seeds, indices, scales and all that goes down. All clients take part in
every round. A run ends after the round by which the task's limit of bits was sent in both directions, or after 160
rounds, which is what limits methods that send little.

How methods are compared:

- An accuracy is that of the last evaluation by so many bits, in the table that of the last round; mean ± sample
  standard deviation over the seeds. No best round is picked.
- Methods share a place if their means differ by no more than {ERRORS:g} standard errors, those over the seeds and those
  of a test set of that size together. With one seed, or one method alone, there are no places.
- A mean less than {100 * NEAR_CHANCE:g} points above chance has no place.
- Rate and local steps ({steps} a round) are searched for each method on two other seeds, with a quarter of the bits
  and rounds. Rates are a factor of about 3 apart, and are added until the best has one on either side; on Shakespeare,
  where FedAvg's best is 10, they begin 30 times as high for local SGD. A choice whose trials are near chance is none:
  the method then has no run. One with which a trial, or later one of the three runs, diverges is left out, and the
  search goes on without it.
- What is searched of FedMRN is α, the size of its noise (`algorithm.alpha`), with `client.lr=0.3`, on Shakespeare 10,
  as FedAvg has it there: a round changes a weight by its noise at most, so that no rate makes up for a small one.
- Dense messages are sent in 32-bit and, in rows of their own, in 16-bit floats. SCAFFOLD and TAMUNA have 32 bits only.
- FedDistill has no model that all share: its accuracy is the mean over the clients' models. Its messages are about
  classes, which the next character of a text has not: it is not among the methods on Shakespeare.
- All clients count alike.
- The most steps that are tried are 60; where they are chosen, more may be better.

What it does not show: larger models, partial participation, methods whose own options are tuned beside rate and steps.
FedMUD, FetchSGD, PowerSGD and all sparsifiers have the share of numbers in their row, and would send fewer or more
with another.

{tasks}
"""


def draw(folder: Folder, place: Path) -> None:
    """The pictures of all tasks with runs."""
    for search in SEARCHES:
        draw_curves(
            _compared(of_choices(search, folder[search])), search.task, place / f"same_bits_{search.task.name}.png"
        )


def _searched(search: Search, records: Records) -> str:
    """A task's section."""
    task = search.task
    runs = of_choices(search, records)
    several = _compared(runs)
    tried = [(row, own) for row in search.rows if (own := records.where(label=row.label))]
    missing = [row for row in search.rows if records and not runs.where(label=row.label)]
    ended = [row for row in missing if not replace(search, records=lambda _: records).next_command(row)]
    return f"""\
## {task.title}

{made_with(search, records)}

{task.setting} Chance is {100 * task.chance:.1f} %; the limit is {task.max_bits / 1e6:,.0f} Mbit.

{results(runs, task, choice_columns(choices(search, records)))}

{picture(several, f"same_bits_{task.name}.png")}

{leaders(several, task, "in both directions", "bits/total", 1.0)}

{leaders(several, task, "up, which is what counts where the downlink is free", "bits/uplink", 0.1)}

{_labels("Not yet run to the end", [row for row in missing if row not in ended])}
{_labels("The trials, below, allow no choice", ended)}

{trials_table(tried)}"""


def _compared(runs: Records) -> Records:
    """The runs, or none where they are all of one method, which is first in nothing."""
    return runs if len(runs.values("label")) > 1 else replace(runs, runs=[])


def _labels(what: str, rows: Sequence[Row]) -> str:
    return f"{what}: {'; '.join(row.label for row in rows)}.\n" if rows else ""


def of_choices(search: Search, records: Records, rows: Sequence[Row] = ROWS) -> Records:
    """The runs after the search, of methods all of whose seeds came to their end."""
    found: list[Run] = []
    for row in rows:
        own = records.where(label=row.label)
        best = chosen(row, own, search.task)
        runs = list(final(row, own, *best)) if best else []
        if {run.about["seed"] for run in runs if run.about["state"] == "finished"} == set(SEEDS):
            found += runs
    return replace(records, runs=found)


def choices(search: Search, records: Records, rows: Sequence[Row] = ROWS) -> dict[str, tuple[int, float] | None]:
    """{label: its local steps and its rate; None: the trials allow no choice}."""
    return {row.label: chosen(row, records.where(label=row.label), search.task) for row in rows}


def choice_columns(picks: Mapping[str, tuple[int, float] | None]) -> list[tuple[str, Cell]]:
    """The rate and the local steps that a method has."""

    def cell(part: int) -> Cell:
        return lambda runs: f"{pick[part]:g}" if (pick := picks[runs.runs[0].about["label"]]) else ""

    return [("rate", cell(1)), ("steps", cell(0))]


def trials_table(tried: Sequence[tuple[Row, Records]]) -> str:
    """Accuracies of the search by rate, for each number of local steps."""
    lines = []
    for row, own in tried:
        scores = trials(row, own)
        cells = [
            ", ".join(
                f"{rate:g}: {'diverged' if score is None else f'{100 * score:.1f}'}"
                for (number, rate), score in sorted(scores.items())
                if number == steps
            )
            for steps in LOCAL_STEPS
        ]
        lines.append(f"| {row.label} | {' | '.join(cells)} |")
    if not lines:
        return ""
    head = ["| accuracy of trials, % | " + " | ".join(f"{steps} steps" for steps in LOCAL_STEPS) + " |"]
    return "\n".join([*head, f"| --- |{' --- |' * len(LOCAL_STEPS)}", *lines])
