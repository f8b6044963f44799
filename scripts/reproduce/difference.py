"""By how much one method's accuracy is above another's, with its standard error: what a claim is judged by."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

ERRORS = 2.0
"""A difference of no more than so many standard errors is none."""


@dataclass(frozen=True)
class Difference:
    """A difference of two means.

    Attributes:
        mean: the first less the second. error: its standard error.
        seeds: the fewest that one of them is of; with one seed `error` is that of the test set alone.
    """

    mean: float
    error: float
    seeds: int

    @property
    def sign(self) -> int:
        """1: above by more than `ERRORS` standard errors; -1: so much below; 0: neither."""
        return 0 if abs(self.mean) <= ERRORS * self.error else 1 if self.mean > 0 else -1

    def __str__(self) -> str:
        way = "above" if self.mean >= 0 else "below"
        alone = "" if self.seeds > 1 else ", one seed: the error of the test set alone"
        return f"{100 * abs(self.mean):.2f} ± {100 * self.error:.2f} points {way}{alone}"


def difference(one: Sequence[float], other: Sequence[float], num_test: int, paired: bool = False) -> Difference:
    """Of accuracies in [0, 1], one a seed: the standard errors over seeds and of a test set of that size together.

    Args:
        paired: both are of the same seeds, in their order. A seed draws the same split for both, and the error is that
            of the differences seed by seed, without what makes a seed hard for both.
    """
    means = fmean(one), fmean(other)
    varying = [[left - right for left, right in zip(one, other, strict=True)]] if paired else [one, other]
    seeds = sum(variance(values) / len(values) for values in varying if len(values) > 1)
    tests = sum(mean * (1 - mean) / num_test for mean in means)
    return Difference(means[0] - means[1], (seeds + tests) ** 0.5, min(len(one), len(other)))


def all_above(found: Sequence[Difference | None]) -> bool | None:
    """Whether all are above 0; False if one is below; None where that is open, or one is not known."""
    signs = [None if one is None else one.sign for one in found]
    if not signs or None in signs:
        return None
    return False if -1 in signs else True if 0 not in signs else None


def none_below(found: Sequence[Difference | None]) -> bool | None:
    """Whether none is below 0 by more than its error; None where one is not known, or there is none."""
    return None if not found or None in found else all(one is not None and one.sign >= 0 for one in found)
