"""Methods that learn bits against the suite; a new one adds a line to CASES."""

from dataclasses import replace

from fedcomp.algorithm.learnt_bits.deltamask import DeltaMask
from fedcomp.algorithm.learnt_bits.fedbat import FedBAT
from fedcomp.algorithm.learnt_bits.fedbif import FedBiF
from tests.algorithm.test_conformance import UPDATES
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
NUMBER = FedBAT(SGD, STEP, Compressor(Sign(), ErrorFeedback()), 0, alpha0=0.02, biases="dense", weights="uniform")
FLIPS = FedBiF(Adam(lr=1e-3, batch_size=4, epochs=3), 4, "symmetric", 1.5, 1e-2, "shared", "flips")
PLACES = DeltaMask(SCORES, kappa=0.9, kappa_final=0.5, coding="places", sends="counts", prior=1.5)
SHARED = DeltaMask(SCORES, kappa=1.0, kappa_final=1.0, draw="independent", reference="shared", reset_every=2)

CASES = [
    AlgorithmCase("fedbat", FedBAT(SGD, STEP, DENSE), SIGNS_UP),
    normed("fedbat-batch_norm", FedBAT(SGD, STEP, DENSE, 0.3, 2.0, 1e-3), SIGNS_AND_NORMALISATION_UP),
    AlgorithmCase("fedbat-number", NUMBER),
    AlgorithmCase("fedbif", FedBiF(SGD), BITS),
    normed("fedbif-flips", FLIPS),
    AlgorithmCase("deltamask", DeltaMask(SCORES)),
    normed("deltamask-places", replace(PLACES, batchnorm_training="trained")),
    AlgorithmCase("deltamask-independent", replace(SHARED, coding="arithmetic")),
]

test_algorithm = suite(CASES, UPDATES)
