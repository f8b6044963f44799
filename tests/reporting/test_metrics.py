"""Which of a run's values is its best, and whether a value is as good as a target."""

import math
from pathlib import Path

from fedcomp.records.reader import RecordedRun
from fedcomp.reporting.metrics import metric, qualities, recorded


def test_the_best_is_finite_where_any_is_and_else_the_first() -> None:
    accuracy, loss = metric("test/accuracy"), metric("test/loss")
    values = [math.nan, 0.3, math.inf, 0.7, -math.inf]
    assert (accuracy.best(values), loss.best(values)) == (0.7, 0.3)
    assert loss.best([math.inf, math.nan]) == math.inf
    assert math.isnan(accuracy.best(iter([math.nan, math.inf])))


def test_intersections_over_unions_are_the_better_the_larger() -> None:
    assert metric("test/miou").best([0.2, 0.5, 0.4]) == 0.5
    assert metric("test/iou/disc").best([0.2, 0.5, 0.4]) == 0.5
    assert not metric("variance/test/miou").higher_is_better
    assert (metric("test/miou").title, metric("test/iou/disc").title) == ("test mean IoU", "test IoU disc")


def test_figures_by_client_are_shown_in_percent() -> None:
    worst, spread = metric("per_client/accuracy_worst_decile"), metric("per_client/accuracy_std")
    assert (worst.title, worst.show(0.4567)) == ("per client accuracy worst decile (%)", "45.67")
    assert (worst.higher_is_better, spread.higher_is_better) == (True, False)


def test_segmentation_is_judged_by_the_mean_iou_first_and_not_by_single_classes() -> None:
    line = {"round": 1, "test/accuracy": 0.8, "test/iou/disc": 0.3, "test/loss": 0.5, "test/miou": 0.4}
    run = RecordedRun(Path("x"), {}, 0, "finished", lines=[line])
    assert [one.key for one in qualities([run])] == ["test/miou", "test/accuracy", "test/loss"]
    assert "test/iou/disc" in recorded([run])


def test_a_target_is_reached_at_the_target() -> None:
    accuracy, loss = metric("test/accuracy"), metric("test/loss")
    assert [accuracy.reaches(value, 0.9) for value in (0.89, 0.9, 0.91)] == [False, True, True]
    assert [loss.reaches(value, 0.9) for value in (0.89, 0.9, 0.91)] == [True, True, False]
    assert not accuracy.reaches(math.nan, 0.9)
