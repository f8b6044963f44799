"""Which of a run's values is its best, and whether a value is as good as a target."""

from __future__ import annotations

import math

from fedcomp.report.metrics import metric


def test_the_best_is_finite_where_any_is_and_else_the_first() -> None:
    accuracy, loss = metric("test/accuracy"), metric("test/loss")
    values = [math.nan, 0.3, math.inf, 0.7, -math.inf]
    assert (accuracy.best(values), loss.best(values)) == (0.7, 0.3)
    assert loss.best([math.inf, math.nan]) == math.inf
    assert math.isnan(accuracy.best(iter([math.nan, math.inf])))


def test_a_target_is_reached_at_the_target() -> None:
    accuracy, loss = metric("test/accuracy"), metric("test/loss")
    assert [accuracy.reaches(value, 0.9) for value in (0.89, 0.9, 0.91)] == [False, True, True]
    assert [loss.reaches(value, 0.9) for value in (0.89, 0.9, 0.91)] == [True, True, False]
    assert not accuracy.reaches(math.nan, 0.9)
