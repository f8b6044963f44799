"""Rounds of a simulation, and what each of them came to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedcomp.algorithm.contract import Metrics
from fedcomp.core.cohort import Cohort
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger


@dataclass(frozen=True)
class Round:
    """One round.

    Attributes:
        before, after: the states. cohort: who took part. metrics: what it said. bits: its counters of every link.
    """

    before: Any
    after: Any
    cohort: Cohort
    metrics: Metrics
    bits: dict[str, int]


def rounds(sim: Simulation, num: int | None = None, state: Any = None, first: int = 0) -> Iterator[Round]:
    """So many rounds (None: all of the run) from round `first` on, from this state (None: the first)."""
    state = sim.init() if state is None else state
    for index in range(first, sim.rounds if num is None else first + num):
        ledger = Ledger()
        after, result = sim.round(index, state, ledger)
        yield Round(state, after, result.cohort, result.metrics, ledger.counters())
        state = after


def one_round(sim: Simulation, state: Any = None, index: int = 0) -> Round:
    """Round `index` from this state (None: the first)."""
    return next(rounds(sim, 1, state, index))
