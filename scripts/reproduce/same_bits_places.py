"""Who is first where several methods are as good as each other: accuracies of a few seeds, and ties among them."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from scripts.reproduce.difference import difference


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
    """Whether means differ by no more than two standard errors: those over seeds, and those of a finite test."""
    return difference(one, other, num_test).sign == 0
