"""How step size and number of directions change over the rounds of DeComFL."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fedcomp.client.solver import Schedule, learning_rate_factor
from fedcomp.core.ranges import CheckedOptions, Whole, Within
from fedcomp.core.validate import is_number


@dataclass(frozen=True)
class Stages(CheckedOptions):
    """eta and P of each round, `lr` and `perturbations` at first.

    Attributes:
        stages: {round: [a, b]}: from this round on (0 is the first), until the next one, eta is a times and P b times
            (b a whole number) what it is otherwise; None: never.
    """

    lr: Annotated[float, Within("(0, inf)", "the length of a local step")] = 1e-3
    perturbations: Annotated[int, Whole()] = 20
    schedule: Schedule = "constant"
    lr_final: Annotated[float, Within("[0, 1]", "a share of algorithm.lr")] = 0.0
    stages: Mapping[int, Sequence[float]] | None = None
    prefix = "algorithm."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule == "exponential" and self.lr_final == 0:
            raise ValueError(
                "algorithm.schedule=exponential multiplies algorithm.lr by algorithm.lr_final in every round, which is "
                "0: give it, for instance algorithm.lr_final=0.99"
            )
        if not isinstance(self.stages, Mapping | None):
            raise ValueError(f"algorithm.stages={self.stages} must be a mapping such as {{500: [0.8, 2]}}, or null")
        for start, factors in (self.stages or {}).items():
            pair = list(factors) if isinstance(factors, Sequence) else []
            numbers = len(pair) == 2 and all(map(is_number, pair)) and pair[0] > 0 and pair[1] >= 1
            if not isinstance(start, int) or start < 0 or not numbers or pair[1] != int(pair[1]):
                raise ValueError(
                    f"algorithm.stages has {start}: {factors}, but maps a round, 0 or more, to a factor of the step "
                    "size above 0 and a whole factor of the number of directions: {500: [0.8, 2], 1000: [0.5, 4]}"
                )

    @property
    def most_perturbations(self) -> int:
        """The largest P."""
        return self.perturbations * max([1, *(int(pair[1]) for pair in (self.stages or {}).values())])

    def size_and_number(self, progress: Iterable[int]) -> tuple[float, int]:
        """eta and P at `progress`: (round, num_rounds), where 0 is the first round."""
        round_index = next(iter(progress))
        begun = [start for start in (self.stages or {}) if start <= round_index]
        factor, more = (self.stages or {})[max(begun)] if begun else (1.0, 1)
        lr = self.lr * learning_rate_factor(self.schedule, self.lr_final, progress)
        return lr * float(factor), self.perturbations * int(more)
