"""Methods whose messages add up before they are decoded, against the suite: FetchSGD and PowerSGD."""

from __future__ import annotations

from fedcomp.algorithm.fetchsgd import FetchSGD
from fedcomp.algorithm.low_rank.powersgd import PowerSGD
from fedcomp.client.sgd import Sgd
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, suite

SGD = Sgd(lr=0.05, batch_size=4)


def _bits(dim, stats, layers, cohort):
    step = max(1, round(0.2 * dim)) * (32 + (dim - 1).bit_length()) + 32 * stats
    return {
        "uplink": cohort * 32 * (3 * max(2, round(0.5 * dim / 3)) + stats),
        "downlink": world.NUM_CLIENTS * step,
        "broadcast": step,
    }


def _power_bits(dim, stats, layers, cohort):
    each = 32 * ((5 + 4) + (4 + 3) + (4 + 3) + stats)  # two matrices of rank 1, two biases
    return {"uplink": cohort * each, "downlink": world.NUM_CLIENTS * each, "broadcast": each}


CASES = [
    AlgorithmCase("fetchsgd", FetchSGD(SGD, 3, None, 0.5, None, 0.2, positions="index", rho=0.5), _bits),
    AlgorithmCase(
        "fetchsgd-subtract",
        FetchSGD(SGD, 3, 30, share=0.3, clear="subtract", mask_momentum=False, rho=0.0, weights="uniform"),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase("powersgd", PowerSGD(SGD, ServerSgd(), 1, 1.0), _power_bits),
    AlgorithmCase(
        "powersgd-batch_norm",
        PowerSGD(SGD, ServerSgd(0.7, 0.5), 2, 0.0, refresh_every=2, decay=0.9, weights="uniform"),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase(
        "powersgd-model", PowerSGD(SGD, ServerSgd(0.7, 0.5), 2, 0.0, sends="model"), None, world.with_batch_norm
    ),
    AlgorithmCase("powersgd-independent", PowerSGD(SGD, ServerSgd(), 1, 1.0, "independent", 3, memory="none"), None),
]

test_algorithm = suite(CASES)
