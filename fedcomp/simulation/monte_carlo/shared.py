"""Repetitions that processes share: each computes its own, and what all must know is gathered.

After a round, all processes have the same ledger and the same metrics of all clients; the state is gathered before it
is evaluated or saved. A repetition is computed by one process alone, with the keys that it has in a single process, and
what is gathered is bytes. So a study is the same bit for bit for any number of processes.

Shape legend: R repetitions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcomp.algorithm.contract import Metrics
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


def gather_result(
    cohorts: Sequence[Cohort], results: Sequence[RoundResult | None], shares: Shares, group: ProcessGroup
) -> RoundResult:
    """One result from those of all repetitions, as `joined_result`.

    Args:
        cohorts: of all repetitions, which every process draws alike. results: None of other processes' repetitions.
    """
    present = [number for number, cohort in enumerate(cohorts) if cohort.size]
    if not present:
        return joined_result([], [])
    place = {number: index for index, number in enumerate(present)}
    sizes = [cohorts[number].size for number in present]
    rows = {number: np.arange(end - size, end) for number, size, end in zip(present, sizes, np.cumsum(sizes))}
    here = [[number for number in own if number in place] for own in shares]
    own_metrics = {number: result.metrics for number in here[group.rank] if (result := results[number]) is not None}
    names = group.common(names_of_all(list(own_metrics.values()))) or []
    each: dict[str, Tensor] | None = None
    shared: dict[str, Tensor] | None = None
    for number, metrics in own_metrics.items():
        clients = {name: metrics[name] for name in names if metrics[name].dim()}
        scalars = {name: metrics[name] for name in names if not metrics[name].dim()}
        if each is None or shared is None:
            each = {name: value.new_empty(sum(sizes), *value.shape[1:]) for name, value in clients.items()}
            shared = {name: value.new_empty(len(present)) for name, value in scalars.items()}
        for name, value in clients.items():
            each[name][rows[number][0] : rows[number][-1] + 1] = value
        for name, value in scalars.items():
            shared[name][place[number]] = value
    each = group.gather(each, [[rows[number] for number in own] for own in here])
    shared = group.gather(shared, _pieces([[place[number] for number in own] for own in here]))
    assert each is not None
    assert shared is not None
    return RoundResult(joined_cohort([cohorts[number] for number in present]), each, tuple(sizes), shared)


def joined_result(cohorts: Sequence[Cohort], metrics: Sequence[Metrics]) -> RoundResult:
    """One result from those of the repetitions in which anybody took part, with the metrics that all of them have.

    A metric may be one of a round in which all clients take part, which is not the same round in all repetitions.
    """
    if not cohorts:
        return RoundResult(Cohort.of((), torch.zeros(0)), {})
    names = names_of_all(metrics) or []
    each = {name: torch.cat([own[name] for own in metrics]) for name in names if metrics[0][name].dim()}
    shared = {name: torch.stack([own[name] for own in metrics]) for name in names if not metrics[0][name].dim()}
    return RoundResult(joined_cohort(cohorts), each, tuple(cohort.size for cohort in cohorts), shared)


def joined_cohort(cohorts: Sequence[Cohort]) -> Cohort:
    """The clients of all these cohorts, one after another."""
    return Cohort(
        torch.cat([one.ids for one in cohorts]),
        torch.cat([one.weight for one in cohorts]),
        tuple(client for one in cohorts for client in one.clients),
    )


def _pieces(shares: Sequence[Sequence[int]]) -> list[list[np.ndarray]]:
    return [[np.array(own)] if own else [] for own in shares]
