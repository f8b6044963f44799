"""Methods that learn bits against the suite; a new one adds a line to CASES."""

from __future__ import annotations

from fedcomp.algorithm.learnt_bits.deltamask import DeltaMask
from fedcomp.algorithm.learnt_bits.fedbat import FedBAT
from fedcomp.algorithm.learnt_bits.fedbif import FedBiF
from fedcomp.client.adam import Adam
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.quantisers.sign import Sign
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, suite
from tests.conformance.bits import dense

SCORES = Adam(lr=0.2, batch_size=4, epochs=3)
SGD, STEP = Sgd(lr=0.1, batch_size=4, epochs=3), ServerSgd()
DENSE = Compressor(Dense())


def _signs_up(dim, stats, layers, cohort):
    return dense(dim, stats, layers, cohort) | {"uplink": cohort * (dim + 32 * len(layers))}


def _signs_and_batch_norm_up(dim, stats, layers, cohort):
    """Scale and shift of 4 channels dense; 3 tensors of signs."""
    each = dim - 8 + 32 * 3 + 32 * 8 + 32 * stats
    return {"uplink": cohort * each, "downlink": cohort * 32 * (dim + stats), "broadcast": 32 * (dim + stats)}


def _bits(dim, stats, layers, cohort):
    """Three bits of 32 weights in 2 tensors, 7 biases dense both ways."""
    each = 3 * 32 + 32 * 2 + 32 * 7
    return {"uplink": cohort * (32 + 32 * 7), "downlink": cohort * each, "broadcast": each}


CASES = [
    AlgorithmCase("fedbat", FedBAT(SGD, STEP, DENSE), _signs_up),
    AlgorithmCase(
        "fedbat-batch_norm", FedBAT(SGD, STEP, DENSE, 0.3, 2.0, 1e-3), _signs_and_batch_norm_up, world.with_batch_norm
    ),
    AlgorithmCase(
        "fedbat-number",
        FedBAT(SGD, STEP, Compressor(Sign(), ErrorFeedback()), 0, alpha0=0.02, biases="dense", weights="uniform"),
        None,
    ),
    AlgorithmCase("fedbif", FedBiF(SGD), _bits),
    AlgorithmCase(
        "fedbif-flips",
        FedBiF(Adam(lr=1e-3, batch_size=4, epochs=3), 4, "symmetric", 1.5, 1e-2, "shared", "flips"),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase("deltamask", DeltaMask(SCORES), None),
    AlgorithmCase(
        "deltamask-places",
        DeltaMask(
            SCORES, kappa=0.9, kappa_final=0.5, coding="places", batchnorm_training="trained", sends="counts", prior=1.5
        ),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase(
        "deltamask-independent",
        DeltaMask(
            SCORES,
            kappa=1.0,
            kappa_final=1.0,
            draw="independent",
            reference="shared",
            coding="arithmetic",
            reset_every=2,
        ),
        None,
    ),
]

test_algorithm = suite(CASES)
