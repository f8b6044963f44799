"""Methods that send masks or train them, and FedSparsify against the suite."""

from dataclasses import replace

from fedcomp.algorithm.bicompfl.bicompfl_gr import BiCompFLGR
from fedcomp.algorithm.bicompfl.bicompfl_pr import BiCompFLPR
from fedcomp.algorithm.fedmrn import FedMRN
from fedcomp.algorithm.fedpm import FedPM
from fedcomp.algorithm.fedsparsify import FedSparsify
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, normed, suite
from tests.conformance.bits import floats, links, relayed
from tests.parts import DENSE, Adam, Compressor, ErrorFeedback, ServerSgd, Sgd, Sign

SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
SIGN = Compressor(Sign(), ErrorFeedback())
SCORES = Adam(lr=0.1, batch_size=4)
MASKS = Adam(lr=0.2, batch_size=4, epochs=3)
RELAYED = relayed(lambda dim: 8 * -(-dim // 16))
MASK_UP = links(lambda dim, stats, layers: dim + 64 + 32 * stats, floats)
MASK_AND_NORMALISATION_UP = links(lambda dim, stats, layers: dim - 8 + 64 + 32 * (8 + stats), floats)
ONE_BIT_UP = links(lambda dim, stats, layers: dim, floats)
NORMALISATION_FROZEN = links(lambda dim, stats, layers: dim - 8 + 32 * stats, lambda dim, *rest: floats(dim - 8, *rest))
SIGNED = FedMRN(SGD, STEP, DENSE, "signed", "gaussian", 0.03, ramp=0.5, power=2.0)
BERNOULLI = FedMRN(SGD, STEP, SIGN, "signed", "bernoulli", 0.03, pm=False, seed_cost="derived", mask_batchnorm=True)
WEIGHTED = FedPM(SCORES, frozen="normal", gain=1.5, theta0=0.5, ste="p_weighted", coding="prior", test="expected")
COUNTED = FedPM(Adam(lr=0.2, batch_size=2, epochs=3), coding="arithmetic", sends="counts", prior=1.5, reset_every=2)
MAJORITY = FedSparsify(Sgd(lr=0.1, batch_size=4, momentum=0.3), 0.5, "progressive", merge="majority")
GR, PR = BiCompFLGR(client=MASKS, block=4, longest=32), BiCompFLPR(client=MASKS, block=4, split_downlink=True)
RECONSTRUCT = BiCompFLGR(client=MASKS, reconstruct=True, block=16, candidates="per_client", n_ul=2, form="affine")
AVERAGE = replace(GR, allocation="adaptive_avg", smallest=2, n_is=20, phi=1.5, capacity="bits")
MIXED = BiCompFLPR(client=MASKS, block=8, optimise_prior=True, n_dl=5, bits=16, test="expected")
MIX = replace(PR, n_ul=2, n_dl=9, rest="mix", mix_half_after=2, mix_until=4, test="expected")


def _coded_both_ways(dim, stats, layers, cohort):
    each = 8 * -(-dim // 16)
    return {"uplink": 2 * cohort * each, "downlink": 2 * cohort * cohort * each, "broadcast": 2 * cohort * each}


def _private(dim, stats, layers, cohort):
    each, down = 6 * -(-dim // 16), world.NUM_CLIENTS
    return {"uplink": cohort * each, "downlink": down * cohort * each, "broadcast": down * cohort * each}


CASES = [
    AlgorithmCase("fedmrn", FedMRN(SGD, STEP, DENSE, alpha=0.1), MASK_UP),
    normed("fedmrn-signed", SIGNED, MASK_AND_NORMALISATION_UP),
    normed("fedmrn-all", BERNOULLI),
    AlgorithmCase("fedmrn-deterministic", FedMRN(SGD, STEP, DENSE, alpha=0.1, sm=False), MASK_UP),
    AlgorithmCase("fedpm", FedPM(SCORES), ONE_BIT_UP),
    normed("fedpm-batch_norm", FedPM(SCORES, gain="e_fan_in"), NORMALISATION_FROZEN),
    normed("fedpm-trained", replace(WEIGHTED, batchnorm_training="trained")),
    AlgorithmCase("fedpm-counts", COUNTED),
    normed("fedpm-persistent", FedPM(SCORES, persist_optimizer=True), NORMALISATION_FROZEN),
    AlgorithmCase("fedsparsify", FedSparsify(Sgd(lr=0.1, batch_size=4, epochs=3), 0.6)),
    normed("fedsparsify-progressive", MAJORITY),
    AlgorithmCase("bicompfl_gr", BiCompFLGR(client=MASKS, block=16), RELAYED),
    AlgorithmCase("bicompfl_gr-reconstruct", RECONSTRUCT, _coded_both_ways),
    normed("bicompfl_gr-adaptive", replace(GR, allocation="adaptive", n_is=64, relay="xor")),
    AlgorithmCase("bicompfl_gr-average", AVERAGE),
    AlgorithmCase("bicompfl_pr", BiCompFLPR(client=MASKS, block=16, n_is=64), _private),
    normed("bicompfl_pr-mixed", MIXED),
    AlgorithmCase("bicompfl_pr-split", replace(PR, rest="qhat")),
    AlgorithmCase("bicompfl_pr-split-mix", MIX),
]

test_algorithm = suite(CASES)
