"""All combinations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from fedcomp.objective.contract import Objective
from fedcomp.sweeper.contract import Choices, Evaluate, Report, Space


@dataclass(frozen=True)
class Grid:
    """Every combination of every value, all handed to the launcher at once; the last key varies fastest."""

    def sweep(self, space: Space, evaluate: Evaluate, objective: Objective, fixed: str = "") -> Report:
        """Run them all. Raises ValueError: an interval has no end of values."""
        lists = []
        for key, domain in space.items():
            if not isinstance(domain, Choices):
                raise ValueError(f"{key} is an interval: give a list (a,b or range()), or take sweeper=optuna")
            lists.append(domain.values)
        results = evaluate([dict(zip(space, values)) for values in itertools.product(*lists)])
        return Report(failed=any(result.error is not None for result in results))
