"""Methods against client drift, against the suite."""

from dataclasses import replace

from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.algorithm.heterogeneity.fedprox import FedProx
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from tests.algorithm.test_conformance import UPDATES
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, normed, suite
from tests.conformance.bits import dense, floats, largest, links, topk
from tests.parts import DENSE, QSGD, Compressor, ErrorFeedback, PermK, RandK, ServerSgd, Sgd, Svrg, TopK, spared

SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
FIXED = Sgd(lr=0.1, batch_size=4, steps=3)
SVRG = Svrg(lr=0.05, batch_size=4, snapshots=2, inner_steps=2, snapshot_batch_size=8)
TOPK = Compressor(TopK(0.2, "index"))
RANDK, PERMK, QSGD7 = Compressor(RandK(0.2)), Compressor(PermK()), Compressor(QSGD())
REMEMBERED = Compressor(TopK(0.2, "index"), ErrorFeedback())
TWO_VECTORS = links(lambda dim, stats, layers: floats(2 * dim, stats, layers))
TWO_TOPK = links(lambda dim, stats, layers: 2 * largest(dim, 0, layers), lambda dim, *rest: floats(2 * dim, *rest))
ONE_TOPK = links(largest, lambda dim, *rest: floats(2 * dim, *rest))
TOPK_BOTH_WAYS = links(lambda *of: largest(*of) + 32, lambda *of: largest(*of) + 64, to_all=True)
"""Up: K_i beside the message; down: M and K."""

CASES = [
    normed("fedprox", FedProx(replace(SGD, proximal=0.1), STEP, DENSE, DENSE), dense),
    AlgorithmCase("fedprox-topk", FedProx(replace(SGD, proximal=0.1), STEP, REMEMBERED, DENSE), topk),
    AlgorithmCase("fedprox-svrg", FedProx(replace(SVRG, proximal=0.5), STEP, RANDK, DENSE)),
    normed("scaffold", Scaffold(SGD, STEP, DENSE), TWO_VECTORS),
    AlgorithmCase("scaffold-topk", Scaffold(SGD, STEP, TOPK, "I"), TWO_TOPK),
    AlgorithmCase("scaffold-randk", Scaffold(SVRG, ServerSgd(0.5), RANDK)),
    normed("scaffold-beside", Scaffold(FIXED, STEP, spared(QSGD7))),
    normed("scallion", Scallion(FIXED, STEP, TOPK, DENSE), ONE_TOPK),
    AlgorithmCase("scallion-mean", Scallion(SGD, STEP, TOPK, REMEMBERED), TOPK_BOTH_WAYS),
    normed("scallion-randk", Scallion(SGD, STEP, RANDK, DENSE, sends="mean_update")),
    AlgorithmCase("scallion-permk", Scallion(FIXED, STEP, PERMK, DENSE), None, participation=world.FULL),
    normed("feddyn", FedDyn(SGD, DENSE), dense),
    AlgorithmCase("feddyn-topk", FedDyn(SGD, TOPK), topk),
    normed("feddyn-samples", FedDyn(SGD, TOPK, 0.5, "samples"), topk),
]

test_algorithm = suite(CASES, UPDATES)
