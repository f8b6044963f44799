"""A search with two ends, the best accuracy and the bits sent: the front of what no other run dominates.

The hypervolume of a front (E. Zitzler and L. Thiele, Multiobjective evolutionary algorithms: a comparative case study
and the strength Pareto approach, IEEE Transactions on Evolutionary Computation 3(4), 1999) is the area that it
dominates, up to a reference point. It is not invariant under a logarithm of an axis. Here bits are counted in decades,
as runs differ by factors of bits: on a linear axis, everything below a tenth of the most expensive run is one tenth of
the area.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fedcomp.core.ranges import CheckedOptions, Within
from fedcomp.display import units
from fedcomp.objective.objectives import BestAccuracy, Direction, Way
from fedcomp.records.metrics_file import Line


class Ends(NamedTuple):
    """A run in the plane of the two ends: best accuracy over evaluations, a fraction, and bits of the whole run."""

    accuracy: float
    bits: float


@dataclass(frozen=True)
class Pareto(CheckedOptions):
    """As much accuracy for as few bits as possible.

    The hypervolume's reference point is `accuracy_from` and `bits_to`; None: the most bits of any run compared.
    """

    way: Way = "total"
    accuracy_from: Annotated[float, Within("[0, 1)", "an accuracy, 0.9 for 90 %")] = 0.0
    bits_to: Annotated[float | None, Within("(0, inf)", "a number of bits")] = None

    prefix = "objective."

    @property
    def directions(self) -> tuple[Direction, Direction]:
        """Which way is better, of accuracy and bits."""
        return "maximize", "minimize"

    def __call__(self, lines: Sequence[Line]) -> Ends:
        """Both ends; both NaN for a run without a finite accuracy, or in which nothing was sent."""
        accuracy = BestAccuracy()(lines)
        bits = float(lines[-1].get(f"bits/{self.way}", math.nan)) if lines else math.nan
        if math.isfinite(accuracy) and 0 < bits < math.inf:
            return Ends(accuracy, bits)
        return Ends(math.nan, math.nan)

    def show(self, ends: Ends) -> str:
        """For people: `97.31 % at 1.2 Mbit`."""
        return f"{units.percent(ends.accuracy)} % at {units.bits(ends.bits)}"

    def reference(self, points: Iterable[Ends]) -> Ends:
        """The reference point of the hypervolume of a front of these points."""
        return Ends(self.accuracy_from, self.bits_to or max((point.bits for point in points), default=math.inf))

    def describe(self, points: Sequence[Ends]) -> str:
        """The front of these points and its hypervolume, in one line."""
        ends, reference = [points[index] for index in front(points)], self.reference(points)
        between = self.show(ends[0]) if len(ends) == 1 else f"{self.show(ends[0])} to {self.show(ends[-1])}"
        return (
            f"{len(ends)} of {len(points)} on the front, {between}; hypervolume "
            f"{units.significant(hypervolume(ends, reference))} (accuracy × decades of {self.way} bits, "
            f"from {self.show(reference)})"
        )


def front(points: Sequence[Ends]) -> list[int]:
    """The places of the points that no other point dominates, by increasing bits, and so by increasing accuracy.

    A point dominates another if it is as good in both ends and better in one. Equal points are all in the front.
    """
    order = sorted(range(len(points)), key=lambda index: (points[index].bits, -points[index].accuracy))
    kept: list[int] = []
    for index in order:
        if not kept or points[index].accuracy > points[kept[-1]].accuracy or points[index] == points[kept[-1]]:
            kept.append(index)
    return kept


def hypervolume(points: Sequence[Ends], reference: Ends) -> float:
    r"""The area, in accuracy times decades of bits, that the points dominate up to the reference point r.

    A point (a, b) dominates the rectangle from (r_a, log10 r_b) to (a, log10 b); what several dominate counts once.
    A point that is not better than r in both ends dominates nothing.
    """
    inside = [point for point in points if point.accuracy > reference.accuracy and point.bits < reference.bits]
    area, reached = 0.0, reference.accuracy
    for index in front(inside):
        accuracy, bits = inside[index]
        area += (accuracy - reached) * math.log10(reference.bits / bits)
        reached = accuracy
    return area
