"""Methods of low rank against the suite; a new one adds a line to CASES."""

from __future__ import annotations

from fedcomp.algorithm.low_rank.fedmud import FedMUD
from fedcomp.client.sgd import Sgd
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, suite

SGD = Sgd(lr=0.1, batch_size=4, epochs=2)


def _to_all(dim, stats, layers, cohort):
    """Rank 1 for the first layer [4, 5]: 9 numbers; 19 dense ones."""
    each = 32 * (9 + 19)
    return {"uplink": cohort * each, "downlink": world.NUM_CLIENTS * each, "broadcast": each}


CASES = [
    AlgorithmCase("fedmud", FedMUD(SGD, skip_first=0, skip_last=0), None),
    AlgorithmCase("fedmud-rank_1", FedMUD(SGD, "mat", skip_first=0), _to_all),
    AlgorithmCase(
        "fedmud-mat",
        FedMUD(SGD, "mat", "fab", 0.5, False, 0, 1, 2, "normal", 0.5, "out_fan_in", weights="uniform"),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase(
        "fedmud-ab",
        FedMUD(Sgd(lr=0.2, batch_size=4, epochs=3), "kron", "ab", 0.9, False, 0, 0, 3, "uniform", 0.7, sends="model"),
        None,
    ),
]

test_algorithm = suite(CASES)
