"""Seconds to an accuracy on three networks: the methods of `same_bits` with its choices, and what they send timed."""

# ruff: noqa: E501 (lines of a page)

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, variance

from fedcomp.display import figure
from scripts.reproduce.clocks import NETWORKS, clock_metric
from scripts.reproduce.difference import ERRORS
from scripts.reproduce.experiment import Command, Experiment
from scripts.reproduce.markdown import Cell, made_with, measured, picture, rounds, spread, table
from scripts.reproduce.records import Folder, Records, Run
from scripts.reproduce.same_bits import SEARCHES
from scripts.reproduce.same_bits_rows import ROWS
from scripts.reproduce.same_bits_search import ACCURACY, COMMITTED, SEEDS, Search, chosen

PHONE = 1e-3
"""Seconds of one sample's gradient."""
CLOCKS = tuple((name, seconds) for seconds in (0.0, PHONE) for name in NETWORKS)
TARGET, ROUNDS = 0.85, 120
PICTURE = "seconds.png"
(SEARCH,) = (search for search in SEARCHES if search.task.name == "fashion_mnist")


class Timed(Experiment):
    """The runs of all methods."""

    @property
    def shown(self) -> str:
        """One command for all."""
        start = f"fedcomp -m {SEARCH.commands[0]}"
        return f"`{start} experiment/neighbours/method@_global_=…` with the rate and steps of each method"

    def sequences(self, scale: str) -> list[Iterator[Command]]:
        """No run waits for another."""
        return [iter([command]) for command in self.overrides(scale)]


def commands(search: Search, records: Records) -> list[str]:
    """Of each method whose rate and steps `same_bits` has chosen, its runs: one seed of all, then the next."""
    found = []
    for seed in SEEDS:
        for row in ROWS:
            best = chosen(row, records.where(label=row.label), search.task)
            if best is not None:
                choice = f"{row.rate}={best[1]:g} {row.steps}={row.value(best[0])}"
                more = f"name=seconds_{search.task.name} rounds={ROUNDS} max_bits=null record_traffic=true seed={seed}"
                found.append(" ".join([search.commands[0], *row.words, choice, more]))
    return found


RUNS = Timed(
    f"seconds_{SEARCH.task.name}",
    commands(SEARCH, COMMITTED[SEARCH]),
    "rounds=5 seed=0",
    [ACCURACY, *(clock_metric(*clock) for clock in CLOCKS)],
    clocks=CLOCKS,
)
EXPERIMENTS = (RUNS,)


def page(folder: Folder) -> str:
    """docs/results/seconds.md."""
    records = folder[RUNS]
    return f"""\
# Seconds on three networks

Who is first where time counts and not bits? The methods of [accuracy for the same bits](same_bits.md#fashion-mnist), LeNet-5
on Fashion-MNIST with ten clients, each with the rate and the number of local steps that was chosen there, without a limit of
bits, for {ROUNDS} rounds. They are trained once; [the clock](../network.md) times what they sent on three networks, with and
without the cost of gradients. The page is written by `make reproduce PAPER=seconds SCALE=paper`.

{made_with(RUNS, records)}

- Networks: {"; ".join(f"`network={name}`, {title}" for name, title in NETWORKS.items())}. The links of all clients are alike.
- A phone computes {1000 * PHONE:g} ms a gradient of a sample: a stated figure, for a slow phone and a small network.
- A cell has the seconds until the first evaluation with {100 * TARGET:g} % test accuracy, one in five rounds: mean ± sample
  standard deviation over seeds. It is empty where a seed has not reached it or diverged later. The first columns have how far the runs went,
  the accuracy at their end, and the mean round of that evaluation.
- **Bold** is the fastest of a column, and what differs from it by no more than {ERRORS:g} standard errors over seeds.

{picture(f"Seconds to {100 * TARGET:g} % by method, on three networks", PICTURE, records)}

Of the picture a bar reaches from the fastest seed to the slowest; methods that have not reached the accuracy are not in it.

{_table(records)}

{_winners(records)}

{not_run(records, folder[SEARCH])}Rates and steps were chosen for bits and not for time: with a phone, more local steps cost more than they did there, and a
method that had only few rounds there was tuned for these few (SCAFFOLD, FedBAT).
"""


def not_run(records: Records, searched: Records) -> str:
    """Which methods have a choice and no run here."""
    missing = [
        row.label
        for row in SEARCH.rows
        if chosen(row, searched.where(label=row.label), SEARCH.task) and not records.where(label=row.label)
    ]
    return f"Not yet run: {'; '.join(missing)}.\n\n" if missing and records else ""


def reached(metric: str) -> Callable[[Run], float | None]:
    """The metric at the first evaluation with the target's accuracy; None: there was none."""
    return lambda run: next((line.get(metric) for line in run.lines if line.get(ACCURACY, 0.0) >= TARGET), None)


def fastest(times: Mapping[str, Sequence[float]]) -> list[str]:
    """The label with the smallest mean, then those that differ by no more than `ERRORS` standard errors, by mean."""
    ordered = sorted(times, key=lambda label: fmean(times[label]))
    return [label for label in ordered if label == ordered[0] or _tie(times[label], times[ordered[0]])]


def _tie(one: Sequence[float], other: Sequence[float]) -> bool:
    error = sum(variance(own) / len(own) if len(own) > 1 else 0.0 for own in (one, other)) ** 0.5
    return abs(fmean(one) - fmean(other)) <= ERRORS * error


def _times(records: Records, metric: str) -> dict[str, list[float]]:
    """{label: the time of each seed}, of methods all of whose seeds reach the target."""
    found = {label: records.where(label=label) for label in records.values("label")}
    times = {label: runs.collect(reached(metric)) for label, runs in found.items()}
    return {label: own for label, own in times.items() if len(own) == len(found[label])}


def draw(folder: Folder, place: Path) -> None:
    """Draw the seconds to the target, a row a method and a panel a network; nothing where nothing has reached it.

    A filled dot is the mean over seeds without the cost of gradients, a hollow one with it; between them a line, and
    around each the range over seeds. Methods are in the order of the first panel, the fastest at the top.
    """
    records = folder[RUNS]
    times = {clock: _times(records, clock_metric(*clock)) for clock in CLOCKS}
    order = sorted(times[CLOCKS[0]], key=lambda label: -fmean(times[CLOCKS[0]][label]))
    if not order:
        return
    page = figure.new_figure(10, 1.3 + 0.24 * len(order))
    for axes, name in zip(page.subplots(1, len(NETWORKS), sharex=True, sharey=True), NETWORKS, strict=True):
        sent, phone = times[name, 0.0], times[name, PHONE]
        axes.hlines(
            range(len(order)),
            [fmean(sent[one]) for one in order],
            [fmean(phone[one]) for one in order],
            color="#CCCCCC",
        )
        for own, colour, fill in ((sent, figure.COLOURS[0], figure.COLOURS[0]), (phone, figure.COLOURS[1], "white")):
            first = fastest(own)
            for row, label in enumerate(order):
                axes.plot([min(own[label]), max(own[label])], [row, row], color=colour, linewidth=1)
                size = 8 if label in first else 5
                axes.plot(fmean(own[label]), row, "o", color=colour, markerfacecolor=fill, markersize=size)
        axes.set_title(NETWORKS[name], fontsize=9, color=figure.INK, loc="left")
        figure.style(axes, f"seconds to {100 * TARGET:g} %", "")
        figure.log_axis(axes, "x")
        axes.set_yticks(range(len(order)), order)
    page.suptitle(
        "Filled: messages alone; hollow: with a phone's gradients. Large: the fastest and what is level with it.",
        fontsize=9,
        color=figure.INK,
    )
    figure.save(page, place / PICTURE)


def _table(records: Records) -> str:
    times = {clock: _times(records, clock_metric(*clock)) for clock in CLOCKS}
    first = {clock: fastest(times[clock]) for clock in CLOCKS}

    def cell(clock: tuple[str, float]) -> Cell:
        def text(runs: Records) -> str:
            label = runs.runs[0].about["label"]
            shown = measured(times[clock].get(label, ()), "{:.3g}".format)
            return f"**{shown}**" if label in first[clock] else shown

        return text

    def to_target(runs: Records) -> str:
        found = runs.collect(reached("round"))
        return f"{fmean(found):.0f}" if len(found) == len(runs) else ""

    def order(label: str) -> tuple[bool, float]:
        own = times[CLOCKS[0]].get(label)
        return own is None, fmean(own) if own else 0.0

    rows = [(label, records.where(label=label)) for label in sorted(records.values("label"), key=order)]
    titles = [f"{NETWORKS[name]}{', phone' if seconds else ''}" for name, seconds in CLOCKS]
    columns = [
        ("seeds", lambda runs: str(len(runs))),
        ("rounds", rounds),
        ("accuracy, %", lambda runs: spread(runs.collect(lambda run: run.last(ACCURACY)), "{:.1f}".format, 100)),
        (f"round of {100 * TARGET:g} %", to_target),
        *((title, cell(clock)) for title, clock in zip(titles, CLOCKS, strict=True)),
    ]
    return table("", rows, columns)


def _winners(records: Records) -> str:
    """A line for each clock: who is first, and how many times as fast as FedAvg."""
    lines = []
    for name, seconds in CLOCKS:
        times = _times(records, clock_metric(name, seconds))
        if not times:
            continue
        first = fastest(times)
        ratio = (
            f", {fmean(times['FedAvg']) / fmean(times[first[0]]):.2g} times as fast as FedAvg"
            if "FedAvg" in times
            else ""
        )
        level = f"; level with it {'; '.join(first[1:])}" if first[1:] else ""
        lines.append(f"- {NETWORKS[name]}{', phone' if seconds else ''}: **{first[0]}**{ratio}{level}.")
    return "\n".join(lines)
