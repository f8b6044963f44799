"""Methods of low rank against the suite; a new one adds a line to CASES."""

from fedcomp.algorithm.low_rank.fedmud import FedMUD
from fedcomp.algorithm.low_rank.powersgd import PowerSGD
from fedcomp.client.sgd import Sgd
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.algorithm.test_conformance import UPDATES
from tests.conformance.algorithm import AlgorithmCase, normed, suite
from tests.conformance.bits import links

SGD, SLOW = Sgd(lr=0.1, batch_size=4, epochs=2), Sgd(lr=0.05, batch_size=4)
RANK_1 = links(lambda *of: 32 * (9 + 19), to_all=True)
"""Rank 1 for the first layer [4, 5]: 9 numbers; 19 dense ones."""
POWER = links(lambda dim, stats, layers: 32 * ((5 + 4) + (4 + 3) + (4 + 3) + stats), to_all=True)
"""Two matrices of rank 1, two biases."""

CASES = [
    AlgorithmCase("fedmud", FedMUD(SGD, skip_first=0, skip_last=0)),
    AlgorithmCase("fedmud-rank_1", FedMUD(SGD, "mat", skip_first=0), RANK_1),
    normed(
        "fedmud-mat", FedMUD(SGD, "mat", "fab", 0.5, False, 0, 1, 2, "normal", 0.5, "out_fan_in", weights="uniform")
    ),
    AlgorithmCase(
        "fedmud-ab",
        FedMUD(Sgd(lr=0.2, batch_size=4, epochs=3), "kron", "ab", 0.9, False, 0, 0, 3, "uniform", 0.7, sends="model"),
    ),
    AlgorithmCase("powersgd", PowerSGD(SLOW, ServerSgd(), 1, 1.0), POWER),
    normed(
        "powersgd-batch_norm",
        PowerSGD(SLOW, ServerSgd(0.7, 0.5), 2, 0.0, refresh_every=2, decay=0.9, weights="uniform"),
    ),
    normed("powersgd-model", PowerSGD(SLOW, ServerSgd(0.7, 0.5), 2, 0.0, sends="model")),
    AlgorithmCase("powersgd-independent", PowerSGD(SLOW, ServerSgd(), 1, 1.0, "independent", 3, memory="none")),
]

test_algorithm = suite(CASES, UPDATES)
