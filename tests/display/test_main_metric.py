"""The metric that a run is shown by."""

from fedcomp.display.main_metric import axis_name, main_metric, metric_text
from fedcomp.display.progress import describe


def test_accuracy_then_loss_then_the_first_of_the_test_metrics() -> None:
    assert main_metric([{"round": 0, "test/loss": 1.0, "test/accuracy": 0.5}]) == "test/accuracy"
    assert main_metric([{"test/accuracy": 0.9, "test/miou": 0.5}]) == "test/miou"
    assert metric_text("test/miou", 0.5) == "test mean IoU 0.500"
    assert main_metric([{"test/other": 1.0, "test/loss": 1.0}]) == "test/loss"
    assert main_metric([{"train/objective": 3.0}, {"test/objective": 1.0, "test/other": 2.0}]) == "test/objective"
    assert main_metric([{"round": 1, "train/loss": 2.0}]) is None


def test_metric_text() -> None:
    assert axis_name("test/accuracy") == "test accuracy (%)"
    assert axis_name("test/distance") == "test distance"
    assert metric_text("test/accuracy", 0.97312) == "accuracy 97.31 %"
    assert (
        describe({"round": 3, "test/distance": 2.7e-6, "bits/total": 1_240_000}) == "test distance 2.70e-06  1.24 Mbit"
    )
    assert describe({"round": 3, "bits/total": 8}) == "8 bit"
