"""What a search reads off a record."""

import math

from fedcomp.objective.objectives import BestAccuracy, BitsToTarget

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
