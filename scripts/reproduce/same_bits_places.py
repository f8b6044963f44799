"""Who is first where several methods are as good as each other: accuracies of a few seeds, and ties among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, variance

ERRORS = 2.0
"""Two means tie if they differ by no more than so many standard errors of their difference."""


def places(scores: Mapping[str, Sequence[float]], num_test: int) -> list[list[str]]:
    """Labels by place, best first: the best of those left, with all that tie with it.

    Args:
        scores: {label: accuracy of each seed, two or more, in [0, 1]}.
        num_test: samples of the test set, which is the same for all.
    """
    left = sorted(scores, key=lambda label: -fmean(scores[label]))
    found = []
    while left:
        best = scores[left[0]]
        found.append([label for label in left if label == left[0] or tie(best, scores[label], num_test)])
        left = [label for label in left if label not in found[-1]]
    return found


def tie(one: Sequence[float], other: Sequence[float], num_test: int) -> bool:
    """Whether means differ by no more than `ERRORS` standard errors: those over seeds, and those of a finite test."""
    means = fmean(one), fmean(other)
    seeds = sum(variance(values) / len(values) for values in (one, other))
    tests = sum(mean * (1 - mean) / num_test for mean in means)
    return bool(abs(means[0] - means[1]) <= ERRORS * (seeds + tests) ** 0.5)
