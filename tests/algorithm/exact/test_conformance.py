"""Methods that reach the exact optimum, against the suite."""

from __future__ import annotations

from fedcomp.algorithm.exact.gradient_estimate import GradientEstimate
from fedcomp.algorithm.exact.locodl import LoCoDL
from fedcomp.algorithm.exact.tamuna import Tamuna
from fedcomp.algorithm.fedavg import FedAvg
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.client.gd import GD
from fedcomp.client.sgd import Sgd
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.quantisers.qsgd import QSGD
from fedcomp.compressor.sparsifiers.permk import PermK
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, suite
from tests.conformance.bits import dense

EXACT, NOISY, STEP = GD(lr=0.3, batch_size=8), Sgd(lr=0.1, batch_size=4), ServerSgd()
DENSE, RANDK = Compressor(Dense()), Compressor(RandK(0.3))
QSGD7, PERMK = Compressor(QSGD()), Compressor(PermK())


def _randk_up(dim, stats, layers, cohort):
    return dense(dim, stats, layers, cohort) | {"uplink": cohort * (64 + 32 * max(1, round(0.3 * dim)))}


def _masked(dim, stats, layers, cohort):
    """Every entry is sent up by 2 of the clients, and goes down to them after the whole model."""
    return {"uplink": 2 * 32 * dim, "downlink": (cohort + 2) * 32 * dim, "broadcast": 3 * 32 * dim}


CASES = [
    AlgorithmCase("fedavg-gd", FedAvg(GD(lr=0.1, steps=3, batch_size=5), STEP, DENSE, DENSE), dense),
    AlgorithmCase("scaffold-gd", Scaffold(GD(lr=0.1, steps=3, batch_size=5), STEP, RANDK), None, world.with_batch_norm),
    AlgorithmCase("locodl", LoCoDL(EXACT, RANDK, p=0.4), _randk_up, participation=world.FULL),
    AlgorithmCase(
        "locodl-period", LoCoDL(EXACT, QSGD7, p=0.3, schedule="period", relay=True), None, participation=world.FULL
    ),
    AlgorithmCase("locodl-sgd", LoCoDL(NOISY, DENSE, p=0.4, convexity=0.1), dense, participation=world.FULL),
    AlgorithmCase("tamuna", Tamuna(EXACT, 2, p=0.4), _masked),
    AlgorithmCase("tamuna-sgd", Tamuna(NOISY, 3, p=0.3, chi=0.9), None, participation=world.FULL),
    AlgorithmCase("dasha", GradientEstimate(EXACT, STEP, RANDK), _randk_up, participation=world.FULL),
    AlgorithmCase(
        "dasha-whole", GradientEstimate(NOISY, ServerSgd(0.5), QSGD7, start="gradient"), None, participation=world.FULL
    ),
    AlgorithmCase("marina", GradientEstimate(EXACT, STEP, RANDK, "marina"), None, participation=world.FULL),
    AlgorithmCase("marina-permk", GradientEstimate(EXACT, STEP, PERMK, "marina"), None, participation=world.FULL),
]

test_algorithm = suite(CASES)
