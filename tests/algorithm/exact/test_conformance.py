"""Methods that reach the exact optimum, against the suite."""

from fedcomp.algorithm.exact.gradient_estimate import GradientEstimate
from fedcomp.algorithm.exact.locodl import LoCoDL
from fedcomp.algorithm.exact.tamuna import Tamuna
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from tests.algorithm.bidirectional.test_conformance import CASES as BIDIRECTIONAL
from tests.algorithm.test_conformance import UPDATES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, normed, suite
from tests.conformance.bits import dense, floats, links
from tests.parts import DENSE, GD, QSGD, Compressor, FedAvg, PermK, RandK, ServerSgd, Sgd

EXACT, NOISY, STEP = GD(lr=0.3, batch_size=8), Sgd(lr=0.1, batch_size=4), ServerSgd()
RANDK = Compressor(RandK(0.3))
QSGD7, PERMK = Compressor(QSGD()), Compressor(PermK())
RANDK_UP = links(lambda dim, stats, layers: 64 + 32 * max(1, round(0.3 * dim)), floats)


def _masked(dim, stats, layers, cohort):
    """Every entry is sent up by 2 of the clients, and goes down to them after the whole model."""
    return {"uplink": 2 * 32 * dim, "downlink": (cohort + 2) * 32 * dim, "broadcast": 3 * 32 * dim}


CASES = [
    AlgorithmCase("fedavg-gd", FedAvg(GD(lr=0.1, steps=3, batch_size=5), STEP, DENSE, DENSE), dense),
    normed("scaffold-gd", Scaffold(GD(lr=0.1, steps=3, batch_size=5), STEP, RANDK)),
    AlgorithmCase("locodl", LoCoDL(EXACT, RANDK, p=0.4), RANDK_UP),
    AlgorithmCase("locodl-period", LoCoDL(EXACT, QSGD7, p=0.3, schedule="period", relay=True)),
    AlgorithmCase("locodl-sgd", LoCoDL(NOISY, DENSE, p=0.4, convexity=0.1), dense),
    AlgorithmCase("tamuna", Tamuna(EXACT, 2, p=0.4), _masked),
    AlgorithmCase("tamuna-sgd", Tamuna(NOISY, 3, p=0.3, chi=0.9), None, participation=world.FULL),
    AlgorithmCase("dasha", GradientEstimate(EXACT, STEP, RANDK), RANDK_UP),
    AlgorithmCase("dasha-whole", GradientEstimate(NOISY, ServerSgd(0.5), QSGD7, start="gradient")),
    AlgorithmCase("marina", GradientEstimate(EXACT, STEP, RANDK, "marina")),
    AlgorithmCase("marina-permk", GradientEstimate(EXACT, STEP, PERMK, "marina")),
]

test_algorithm = suite(CASES, [*UPDATES, *BIDIRECTIONAL])
