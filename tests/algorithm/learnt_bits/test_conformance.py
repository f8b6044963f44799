"""Methods that learn bits against the suite; a new one adds a line to CASES."""

from fedcomp.algorithm.learnt_bits.deltamask import DeltaMask
from fedcomp.algorithm.learnt_bits.fedbat import FedBAT
from fedcomp.algorithm.learnt_bits.fedbif import FedBiF
from tests.conformance.algorithm import AlgorithmCase, normed, suite
from tests.conformance.bits import floats, links
from tests.parts import DENSE, Adam, Compressor, ErrorFeedback, ServerSgd, Sgd, Sign

SCORES = Adam(lr=0.2, batch_size=4, epochs=3)
SGD, STEP = Sgd(lr=0.1, batch_size=4, epochs=3), ServerSgd()
SIGNS_UP = links(lambda dim, stats, layers: dim + 32 * len(layers), floats)
SIGNS_AND_NORMALISATION_UP = links(lambda dim, stats, layers: dim - 8 + 32 * 3 + 32 * (8 + stats), floats)
"""Scale and shift of 4 channels dense; 3 tensors of signs."""
BITS = links(lambda *of: 32 + 32 * 7, lambda *of: 3 * 32 + 32 * 2 + 32 * 7)
"""Three bits of 32 weights in 2 tensors down and one of each up, 7 biases dense both ways."""

CASES = [
    AlgorithmCase("fedbat", FedBAT(SGD, STEP, DENSE), SIGNS_UP),
    normed("fedbat-batch_norm", FedBAT(SGD, STEP, DENSE, 0.3, 2.0, 1e-3), SIGNS_AND_NORMALISATION_UP),
    AlgorithmCase(
        "fedbat-number",
        FedBAT(SGD, STEP, Compressor(Sign(), ErrorFeedback()), 0, alpha0=0.02, biases="dense", weights="uniform"),
    ),
    AlgorithmCase("fedbif", FedBiF(SGD), BITS),
    normed("fedbif-flips", FedBiF(Adam(lr=1e-3, batch_size=4, epochs=3), 4, "symmetric", 1.5, 1e-2, "shared", "flips")),
    AlgorithmCase("deltamask", DeltaMask(SCORES)),
    normed(
        "deltamask-places",
        DeltaMask(
            SCORES, kappa=0.9, kappa_final=0.5, coding="places", batchnorm_training="trained", sends="counts", prior=1.5
        ),
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
    ),
]

test_algorithm = suite(CASES)
