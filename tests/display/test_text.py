"""Quantities, and the metric that a run is shown by, as text: exact small cases."""

import math
from collections.abc import Callable

from fedcomp.display import units
from fedcomp.display.metric import main_metric, metric
from fedcomp.display.progress import describe
from fedcomp.records.metrics_file import Line
from tests.looped import looped

QUANTITIES = {
    units.bits: [
        *[(0, "0 bit"), (1, "1 bit"), (812, "812 bit"), (999, "999 bit"), (1000, "1.00 kbit"), (61_706, "61.7 kbit")],
        *[(999_499, "999 kbit"), (999_500, "1.00 Mbit"), (1_240_000_000, "1.24 Gbit"), (2**62, "4.61 Ebit")],
        *[(10**22, "10000 Ebit"), (math.nan, "nan bit")],
    ],
    units.significant: [
        *[(0, "0"), (0.03125, "0.0312"), (1, "1.00"), (32, "32.0"), (99.99, "100"), (999.4, "999"), (999.6, "1000")],
        *[(1234.4, "1234"), (-1234.4, "-1234"), (2.7e-6, "2.70e-06"), (math.inf, "inf")],
    ],
    units.duration: [
        *[(9.994, "9.99 s"), (9.996, "10.0 s"), (59.94, "59.9 s"), (59.96, "1 m 00 s"), (80, "1 m 20 s")],
        *[(3599.4, "59 m 59 s"), (3599.6, "1 h 00 m"), (7500, "2 h 05 m"), (86399, "1 d 00 h"), (273_600, "3 d 04 h")],
        (math.nan, "?"),
    ],
    units.percent: [(0.97312, "97.31")],
    units.power: [(1e5, "10⁵"), (2e-4, "2·10⁻⁴"), (1e-12, "10⁻¹²"), (5e10, "5·10¹⁰")],
}


@looped("show, value, text", [(show, *case) for show, cases in QUANTITIES.items() for case in cases])
def test_quantities(show: Callable[[float], str], value: float, text: str) -> None:
    assert show(value) == text


def test_counts() -> None:
    assert [units.counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


@looped(
    "lines, key",
    [
        ([{"round": 0, "test/loss": 1.0, "test/accuracy": 0.5}], "test/accuracy"),
        ([{"test/accuracy": 0.9, "test/miou": 0.5}], "test/miou"),
        ([{"test/other": 1.0, "test/loss": 1.0}], "test/loss"),
        ([{"train/objective": 3.0}, {"test/objective": 1.0, "test/other": 2.0}], "test/objective"),
        ([{"round": 1, "train/loss": 2.0}], None),
    ],
)
def test_accuracy_then_loss_then_the_first_of_the_test_metrics(lines: list[Line], key: str | None) -> None:
    found = main_metric(lines)
    assert (found and found.key) == key


def test_a_metric_and_an_evaluation_as_text() -> None:
    assert [metric(f"test/{key}").title for key in ("accuracy", "distance")] == ["test accuracy (%)", "test distance"]
    assert metric("test/accuracy").text(0.97312) == "accuracy 97.31 %"
    assert metric("test/own/accuracy").text(0.97312) == "test own accuracy 97.31 %"
    assert metric("test/miou").text(0.5) == "test mean IoU 0.500"
    line = {"round": 3, "test/distance": 2.7e-6, "bits/total": 1_240_000}
    assert describe(line) == "test distance 2.70e-06  1.24 Mbit"
    assert describe({"round": 3, "bits/total": 8}) == "8 bit"
