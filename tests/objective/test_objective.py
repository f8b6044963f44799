"""What a search reads off a record; fronts and their hypervolume, against a count of cells and against Optuna's own."""

import math

import numpy as np
import pytest

from fedcomp.objective.objectives import BestAccuracy, BitsToTarget
from fedcomp.objective.pareto import Ends, Pareto, front, hypervolume

LINES = [
    {"round": 0, "test/accuracy": 0.1, "bits/total": 0, "bits/uplink": 0},
    {"round": 1, "test/accuracy": 0.7, "bits/total": 33, "bits/uplink": 1},
    {"round": 2, "test/accuracy": 0.9, "bits/total": 66, "bits/uplink": 2},
    {"round": 3, "test/accuracy": 0.8, "bits/total": 99, "bits/uplink": 3},
]
REGRESSION = [{"round": 0, "test/loss": 1.0, "bits/total": 0}]


def test_best_accuracy() -> None:
    assert BestAccuracy()(LINES) == 0.9
    assert BestAccuracy()([*LINES, {"round": 4, "test/accuracy": math.nan}]) == 0.9
    assert math.isnan(BestAccuracy()(REGRESSION))


def test_bits_to_target() -> None:
    assert BitsToTarget(target=0.7)(LINES) == 33
    assert BitsToTarget(target=0.75, way="uplink")(LINES) == 2
    assert BitsToTarget(target=0.95)(LINES) == math.inf
    assert math.isnan(BitsToTarget()(REGRESSION))


POINTS = [Ends(0.5, 10), Ends(0.9, 1000), Ends(0.7, 100), Ends(0.6, 500), Ends(0.9, 1000), Ends(0.4, 10)]


def test_the_front_has_what_nothing_dominates() -> None:
    assert [POINTS[index] for index in front(POINTS)] == [POINTS[0], POINTS[2], POINTS[1], POINTS[4]]
    generator = np.random.default_rng(0)
    points = [Ends(round(a, 1), round(10**b, 1)) for a, b in generator.uniform(0, 1, (200, 2))]
    assert set(front(points)) == {
        place
        for place, one in enumerate(points)
        if not any(o.accuracy >= one.accuracy and o.bits <= one.bits and o != one for o in points)
    }
    assert front([]) == []


def test_the_hypervolume_is_the_dominated_area() -> None:
    assert hypervolume(POINTS, Ends(0, 1000)) == pytest.approx(0.5 * 2 + 0.2 * 1)
    assert hypervolume(POINTS, Ends(0.5, 10_000)) == pytest.approx(0.2 * 2 + 0.2 * 1)
    assert hypervolume([Ends(0.5, 10)], Ends(0.6, 100)) == hypervolume([], Ends(0, 1)) == 0
    generator = np.random.default_rng(1)
    draws = generator.uniform(0, 1, (30, 2))
    points = [Ends(a, 10**b) for a, b in draws]
    step = 1 / 1000
    a, b = np.meshgrid(*[np.arange(step / 2, 1, step)] * 2)
    dominated = np.any([(a < one[0]) & (b > one[1]) for one in draws], axis=0)
    assert hypervolume(points, Ends(0, 10)) == pytest.approx(dominated.mean(), abs=2 * step)


def test_both_ends_are_read_off_a_record() -> None:
    lines = [
        {"round": 0, "test/accuracy": 0.1, "bits/total": 0, "bits/uplink": 0},
        {"round": 1, "test/accuracy": 0.9, "bits/total": 66, "bits/uplink": 2},
        {"round": 2, "test/accuracy": 0.8, "bits/total": 99, "bits/uplink": 3},
    ]
    assert Pareto()(lines) == (0.9, 99)
    assert Pareto(way="uplink")(lines) == (0.9, 3)
    for without in ([], lines[:1], [{"round": 1, "test/loss": 1.0, "bits/total": 3}]):
        assert all(map(math.isnan, Pareto()(without)))


def test_the_line_about_a_front() -> None:
    said = Pareto().describe(POINTS)
    assert said == (
        "4 of 6 on the front, 50.00 % at 10 bit to 90.00 % at 1.00 kbit; hypervolume 1.20 (accuracy × decades of total "
        "bits, from 0.00 % at 1.00 kbit)"
    )
    assert "hypervolume 0.600 (" in Pareto(accuracy_from=0.5, bits_to=10_000).describe(POINTS)


def test_a_reference_of_no_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="objective.bits_to=0 must be a positive number, or null: a number of bits"):
        Pareto(bits_to=0)
