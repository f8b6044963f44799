"""Zeroth-order methods against the suite; a new one adds a line to CASES."""

from dataclasses import replace

from fedcomp.algorithm.zeroth_order.decomfl import DeComFL
from fedcomp.algorithm.zeroth_order.fedkseed import FedKSeed
from tests.algorithm.test_conformance import UPDATES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, normed, suite
from tests.conformance.bits import links

TO_EVERYBODY = links(lambda *of: 2 * 15 * 32, lambda *of: 2 * 64 + 2 * 15 * 32, to_all=True)
"""Two steps of 15 directions; the seeds and the mean scalars go to all clients."""
MODEL_DOWN = links(lambda dim, stats, layers: 32 * (20 + stats), lambda dim, stats, layers: 32 * (2 * dim + stats) + 64)
"""20 scalars up; model, velocity and seed down, statistics both ways."""
PAIRS_UP = links(lambda *of: 12 * 38, lambda *of: 64 * 32)
"""12 indices of 6 bits and 12 scalars; 64 coefficients down."""
PRO = links(lambda dim, stats, layers: 32 * (10 + stats), lambda dim, stats, layers: 32 * (2 * 40 + stats))
"""Derived choices; coefficients, probabilities and statistics."""
SUMS = links(lambda *of: 6 * 32)

DECOMFL, FEDKSEED = DeComFL(lr=0.02, batch_size=4), FedKSeed(pool=40, steps=10, lr=0.02, batch_size=4)
ALL = replace(DECOMFL, steps=2, perturbations=15, mu=1e-2, difference="forward", distribution="rademacher")
MODEL = replace(DECOMFL, mu=1e-2, distribution="sphere", momentum=0.5, weight_decay=1e-4, running_stats="gather")
FORWARD = replace(DECOMFL, steps=2, perturbations=10, mu=1e-2, difference="forward", lr=0.03, running_stats="gather")
STAGES = replace(FORWARD, schedule="cosine", lr_final=0.5, stages={2: [0.8, 2]}, sends="shortest", history=2)
AMPLITUDE = replace(FEDKSEED, lr=0.01, sampling="amplitude", unbiased_sampling=True, choice="derived")
SPHERE = replace(AMPLITUDE, mu=1e-2, difference="forward", distribution="sphere", running_stats="gather")
DELTA = replace(FEDKSEED, pool=200, steps=8, distribution="rademacher", sends="delta", clip=5.0, weights="uniform")

CASES = [
    AlgorithmCase("decomfl", replace(DECOMFL, momentum=0.5, verify_replay=True)),
    AlgorithmCase("decomfl-all", replace(ALL, sends="broadcast_all"), TO_EVERYBODY),
    normed("decomfl-model", replace(MODEL, sends="model"), MODEL_DOWN),
    normed(
        "decomfl-stages", replace(STAGES, seed_cost="derived", weights="samples", diagnose=True, verify_replay=True)
    ),
    AlgorithmCase("fedkseed", replace(FEDKSEED, pool=64, steps=12), PAIRS_UP),
    normed("fedkseed-pro", SPHERE, PRO),
    AlgorithmCase("fedkseed-delta", DELTA),
    AlgorithmCase("fedkseed-delta-full", DELTA, None, participation=world.FULL),
    AlgorithmCase("fedkseed-sums", replace(FEDKSEED, pool=6, steps=30), SUMS),
]

test_algorithm = suite(CASES, UPDATES)
