"""Repetitions that processes share: each computes its own, and what all must know is gathered.

After a round, all processes have the same ledger and the same metrics of all clients; the state is gathered before it
is evaluated or saved. A repetition is computed by one process alone, with the keys that it has in a single process, and
what is gathered is bytes. So a study is the same bit for bit for any number of processes.

Shape legend: R repetitions, M clients of a repetition's cohort.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.cohort import Cohort
from fedcomp.runtime.workers import ProcessGroup, names_of_all
from fedcomp.simulation.round_result import RoundResult
from fedcomp.wire import Ledger

Shares = list[list[int]]
"""The numbers of the repetitions of each process."""


def split(num: int, group: ProcessGroup) -> Shares:
    """About as many repetitions for each process; neighbours go to different ones."""
    return [list(range(rank, num, group.size)) for rank in range(group.size)]


def gather(rows: Any, shares: Shares, group: ProcessGroup) -> Any:
    """A tree of tensors [R, ...], of which this process knows the rows of its repetitions, completed in place."""
    return group.gather(rows, _pieces(shares))


def sum_of(spent: Ledger, group: ProcessGroup) -> Ledger:
    """What all processes have spent."""
    counts = spent.counters()
    total = Ledger()
    total.restore(dict(zip(counts, group.sum_on_host(np.array(list(counts.values()))).tolist())))
    return total


def gather_metrics(
    lines: Mapping[int, Mapping[str, Tensor]], num: int, shares: Shares, group: ProcessGroup
) -> dict[str, Tensor]:
    """Float64 [R] of every metric of a line. `lines`: {repetition: its line}, of this process's repetitions."""
    first = next(iter(lines.values()))
    rows = {name: value.new_zeros(num, dtype=torch.float64) for name, value in first.items()}
    for number, line in lines.items():
        for name, value in line.items():
            rows[name][number] = value
    return gather(rows, shares, group)


def gather_results(
    cohorts: Sequence[Cohort], results: Sequence[RoundResult | None], shares: Shares, group: ProcessGroup
) -> list[RoundResult]:
    """The results of all repetitions in which anybody took part, with the metrics that all of them have.

    Args:
        cohorts: of all repetitions, which every process draws alike. results: None of other processes' repetitions.
    """
    present = [number for number, cohort in enumerate(cohorts) if cohort.size]
    if not present:
        return []
    place = {number: index for index, number in enumerate(present)}
    ends = np.cumsum([cohorts[number].size for number in present])
    starts = [0, *ends[:-1].tolist()]
    here = [[number for number in own if number in place] for own in shares]
    rows = [[np.arange(starts[place[number]], ends[place[number]]) for number in own] for own in here]
    each: dict[str, Tensor] | None = None
    shared: dict[str, Tensor] | None = None
    own_metrics = {number: result.metrics for number in here[group.rank] if (result := results[number]) is not None}
    names = group.common(names_of_all(list(own_metrics.values()))) or []
    for number, metrics in own_metrics.items():
        clients = {name: metrics[name] for name in names if metrics[name].dim()}
        scalars = {name: metrics[name] for name in names if not metrics[name].dim()}
        if each is None or shared is None:
            each = {name: value.new_empty(int(ends[-1]), *value.shape[1:]) for name, value in clients.items()}
            shared = {name: value.new_empty(len(present)) for name, value in scalars.items()}
        start, end = starts[place[number]], int(ends[place[number]])
        for name, value in clients.items():
            each[name][start:end] = value
        for name, value in scalars.items():
            shared[name][place[number]] = value
    each = group.gather(each, rows)
    shared = group.gather(shared, _pieces([[place[number] for number in own] for own in here]))
    assert each is not None
    assert shared is not None
    return [
        RoundResult(
            cohorts[number],
            {name: value[start:end] for name, value in each.items()}
            | {name: value[place[number]] for name, value in shared.items()},
        )
        for number, start, end in zip(present, starts, ends.tolist())
    ]


def _pieces(shares: Sequence[Sequence[int]]) -> list[list[np.ndarray]]:
    return [[np.array(own)] if own else [] for own in shares]
