"""One simulation, as a session runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedcomp.model.contract import AnyModel
from fedcomp.records.metrics_file import Line
from fedcomp.simulation.round_result import EvaluationRecord, RoundResult
from fedcomp.simulation.simulation import Simulation
from fedcomp.wire import Ledger


@dataclass(frozen=True)
class Once:
    """Implements `RoundRunner` for `simulation`."""

    simulation: Simulation

    @property
    def rounds(self) -> int:
        """How many there are."""
        return self.simulation.rounds

    @property
    def model(self) -> AnyModel:
        """What is learnt."""
        return self.simulation.model

    def init(self) -> Any:
        """The first state."""
        return self.simulation.init()

    def round(self, index: int, state: Any, ledger: Ledger, donate_state: bool = False) -> tuple[Any, RoundResult]:
        """As `Simulation.round`."""
        state, cohort, metrics = self.simulation.round(index, state, ledger, donate_state)
        return state, RoundResult(cohort, metrics)

    def record(self, index: int, state: Any, result: RoundResult | None) -> EvaluationRecord:
        """Test metrics, and the round's own ones as means over clients; none of a round without clients. Unread."""
        line: dict[str, Any] = self.simulation.metrics(index, state)
        if result is not None:
            line |= {name: value.mean() for name, value in result.metrics.items()}
            line |= self.simulation.participation_metrics(index - 1)
        return EvaluationRecord(line)

    def bits_metrics(self, ledger: Ledger) -> Line:
        """The ledger's line."""
        return ledger.record(self.model.dim)
