"""Methods that send masks or train them, and FedSparsify against the suite."""

from __future__ import annotations

from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.fedsparsify import FedSparsify
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

SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
DENSE = Compressor(Dense())
SIGN = Compressor(Sign(), ErrorFeedback())
SCORES = Adam(lr=0.1, batch_size=4)
MASKS = Adam(lr=0.2, batch_size=4, epochs=3)


def _mask_up(dim, stats, layers, cohort):
    return dense(dim, stats, layers, cohort) | {"uplink": cohort * (dim + 64 + 32 * stats)}


def _mask_and_batch_norm_up(dim, stats, layers, cohort):
    return dense(dim, stats, layers, cohort) | {"uplink": cohort * (dim - 8 + 64 + 32 * 8 + 32 * stats)}


def _relayed(dim, stats, layers, cohort):
    each = 8 * -(-dim // 16)
    return {"uplink": cohort * each, "downlink": cohort * (cohort - 1) * each, "broadcast": cohort * each}


def _coded_both_ways(dim, stats, layers, cohort):
    each = 8 * -(-dim // 16)
    return {"uplink": 2 * cohort * each, "downlink": 2 * cohort * cohort * each, "broadcast": 2 * cohort * each}


def _private(dim, stats, layers, cohort):
    each, down = 6 * -(-dim // 16), world.NUM_CLIENTS
    return {"uplink": cohort * each, "downlink": down * cohort * each, "broadcast": down * cohort * each}


def _one_bit_up(dim, stats, layers, cohort):
    return dense(dim, stats, layers, cohort) | {"uplink": cohort * dim}


def _one_bit_up_batch_norm_frozen(dim, stats, layers, cohort):
    each = 32 * (dim - 8 + stats)
    return {"uplink": cohort * (dim - 8 + 32 * stats), "downlink": cohort * each, "broadcast": each}


CASES = [
    AlgorithmCase("fedmrn", FedMRN(SGD, STEP, DENSE, alpha=0.1), _mask_up),
    AlgorithmCase(
        "fedmrn-signed",
        FedMRN(SGD, STEP, DENSE, "signed", "gaussian", 0.03, ramp=0.5, power=2.0),
        _mask_and_batch_norm_up,
        world.with_batch_norm,
    ),
    AlgorithmCase(
        "fedmrn-all",
        FedMRN(SGD, STEP, SIGN, "signed", "bernoulli", 0.03, pm=False, seed_cost="derived", mask_batchnorm=True),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase("fedmrn-deterministic", FedMRN(SGD, STEP, DENSE, alpha=0.1, sm=False), _mask_up),
    AlgorithmCase("fedpm", FedPM(SCORES), _one_bit_up),
    AlgorithmCase(
        "fedpm-batch_norm", FedPM(SCORES, gain="e_fan_in"), _one_bit_up_batch_norm_frozen, world.with_batch_norm
    ),
    AlgorithmCase(
        "fedpm-trained",
        FedPM(SCORES, "normal", 1.5, 0.5, "p_weighted", batchnorm_training="trained", coding="prior", test="expected"),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase(
        "fedpm-counts",
        FedPM(Adam(lr=0.2, batch_size=2, epochs=3), coding="arithmetic", sends="counts", prior=1.5, reset_every=2),
        None,
    ),
    AlgorithmCase(
        "fedpm-persistent", FedPM(SCORES, persist_optimizer=True), _one_bit_up_batch_norm_frozen, world.with_batch_norm
    ),
    AlgorithmCase("fedsparsify", FedSparsify(Sgd(lr=0.1, batch_size=4, epochs=3), 0.6), None),
    AlgorithmCase(
        "fedsparsify-progressive",
        FedSparsify(Sgd(lr=0.1, batch_size=4, momentum=0.3), 0.5, "progressive", merge="majority"),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase("bicompfl_gr", BiCompFLGR(client=MASKS, block=16), _relayed, participation=world.FULL),
    AlgorithmCase(
        "bicompfl_gr-reconstruct",
        BiCompFLGR(client=MASKS, reconstruct=True, block=16, candidates="per_client", n_ul=2, form="affine"),
        _coded_both_ways,
        participation=world.FULL,
    ),
    AlgorithmCase(
        "bicompfl_gr-adaptive",
        BiCompFLGR(client=MASKS, allocation="adaptive", block=4, longest=32, n_is=64, relay="xor"),
        None,
        world.with_batch_norm,
        participation=world.FULL,
    ),
    AlgorithmCase(
        "bicompfl_gr-average",
        BiCompFLGR(
            client=MASKS, allocation="adaptive_avg", block=4, smallest=2, longest=32, n_is=20, phi=1.5, capacity="bits"
        ),
        None,
        participation=world.FULL,
    ),
    AlgorithmCase("bicompfl_pr", BiCompFLPR(client=MASKS, block=16, n_is=64), _private),
    AlgorithmCase(
        "bicompfl_pr-mixed",
        BiCompFLPR(client=MASKS, block=8, optimise_prior=True, n_dl=5, bits=16, test="expected"),
        None,
        world.with_batch_norm,
    ),
    AlgorithmCase("bicompfl_pr-split", BiCompFLPR(client=MASKS, block=4, split_downlink=True, rest="qhat"), None),
    AlgorithmCase(
        "bicompfl_pr-split-mix",
        BiCompFLPR(
            client=MASKS,
            block=4,
            n_ul=2,
            n_dl=9,
            split_downlink=True,
            rest="mix",
            mix_half_after=2,
            mix_until=4,
            test="expected",
        ),
        None,
    ),
]

test_algorithm = suite(CASES)
