"""What a round returns beside the state, of one simulation or of several repetitions.

Shape legend: R repetitions, M clients that took part in a repetition.
"""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from fedcomp.algorithm.contract import Metrics
from fedcomp.core.cohort import Cohort
from fedcomp.model.contract import AnyModel
from fedcomp.records.metrics_file import Line
from fedcomp.simulation.async_metrics import Scalars
from fedcomp.wire import Ledger


@dataclass(frozen=True)
class RoundResult:
    """Who took part in a round, and its own metrics.

    Attributes:
        cohort: the clients, of all repetitions one after another.
        metrics: as `Algorithm.round` gives them; of repetitions, those with one value a client.
        sizes: M of each repetition in which anybody took part.
        shared: (repetitions alone) metrics with one value a round, [R] each.
    """

    cohort: Cohort
    metrics: Metrics
    sizes: tuple[int, ...] = ()
    shared: Metrics = field(default_factory=dict)

    def means(self) -> dict[str, Tensor]:
        """Float64 [R] of each metric: its mean over the clients of each repetition in which anybody took part."""
        sizes = torch.tensor(self.sizes, dtype=torch.int64, device="cpu").to(self.cohort.ids.device, non_blocking=True)
        every = torch.arange(len(self.sizes), device=sizes.device)
        repetition = every.repeat_interleave(sizes, output_size=sum(self.sizes))
        each = {
            name: sizes.new_zeros(len(self.sizes), dtype=torch.float64).index_add_(0, repetition, value.double())
            / sizes
            for name, value in self.metrics.items()
        }
        return each | {name: value.to(torch.float64) for name, value in self.shared.items()}


@dataclass(frozen=True)
class Evaluation:
    """One evaluation.

    Attributes:
        line: of `metrics.jsonl`, without round, bits and seconds; its tensors are on their device, not read back yet.
        each: of `repetitions.jsonl`, one list with a value a repetition for each metric; {} of a single run.
    """

    line: Scalars
    each: dict[str, list[float]] = field(default_factory=dict)


class RoundRunner(Protocol):
    """What a session runs: one simulation, or repetitions of it."""

    @property
    def rounds(self) -> int: ...
    @property
    def model(self) -> AnyModel: ...
    @property
    def open_ended(self) -> bool: ...

    def init(self) -> object:
        """The state before the first round."""

    def round(
        self, index: int, state: object, ledger: Ledger, donate_state: bool = False
    ) -> tuple[object, RoundResult]:
        """Round `index` (0 is the first). `donate_state`: the caller gives up `state`; it may be changed in place."""

    def evaluate(self, index: int, state: object, result: RoundResult | None) -> Evaluation:
        """The evaluation after `index` rounds; `result` of the last one, None before the first."""

    def gather_state(self, state: object) -> object:
        """The whole state, the same in every process. Between rounds a process may have only a part of it."""

    def bits_metrics(self, ledger: Ledger) -> Line:
        """The ledger's part of a line of `metrics.jsonl`."""
