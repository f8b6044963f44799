"""Methods against client drift, against the suite."""

from __future__ import annotations

from dataclasses import replace

from fedcomp.algorithm.heterogeneity.feddyn import FedDyn
from fedcomp.algorithm.heterogeneity.fedprox import FedProx
from fedcomp.algorithm.heterogeneity.scaffold import Scaffold
from fedcomp.algorithm.heterogeneity.scallion import Scallion
from fedcomp.client.sgd import Sgd
from fedcomp.client.svrg import Svrg
from fedcomp.compressor import Compressor
from fedcomp.compressor.dense import Dense
from fedcomp.compressor.feedback import ErrorFeedback
from fedcomp.compressor.quantisers.qsgd import QSGD
from fedcomp.compressor.sparsifiers.permk import PermK
from fedcomp.compressor.sparsifiers.randk import RandK
from fedcomp.compressor.sparsifiers.topk import TopK
from fedcomp.server.sgd import Sgd as ServerSgd
from tests.conformance import world
from tests.conformance.algorithm import AlgorithmCase, suite
from tests.conformance.bits import dense, topk

SGD, STEP = Sgd(lr=0.1, batch_size=4), ServerSgd()
FIXED = Sgd(lr=0.1, batch_size=4, steps=3)
SVRG = Svrg(lr=0.05, batch_size=4, snapshots=2, inner_steps=2, snapshot_batch_size=8)
DENSE, TOPK = Compressor(Dense()), Compressor(TopK(0.2, "index"))
RANDK, PERMK, QSGD7 = Compressor(RandK(0.2)), Compressor(PermK()), Compressor(QSGD())
REMEMBERED = Compressor(TopK(0.2, "index"), ErrorFeedback())


def _two_dense(dim, stats, layers, cohort):
    each = 32 * (2 * dim + stats)
    return {"uplink": cohort * each, "downlink": cohort * each, "broadcast": each}


def _two_topk(dim, stats, layers, cohort):
    kept = max(1, round(0.2 * dim))
    uplink = 2 * kept * (32 + (dim - 1).bit_length()) + 32 * stats
    return _two_dense(dim, stats, layers, cohort) | {"uplink": cohort * uplink}


def _one_topk(dim, stats, layers, cohort):
    return _two_dense(dim, stats, layers, cohort) | {"uplink": topk(dim, stats, layers, cohort)["uplink"]}


def _topk_both_ways(dim, stats, layers, cohort):
    """Up: K_i beside the message; down: M and K."""
    message = max(1, round(0.2 * dim)) * (32 + (dim - 1).bit_length()) + 32 * stats
    down = message + 64
    return {"uplink": cohort * (message + 32), "downlink": world.NUM_CLIENTS * down, "broadcast": down}


CASES = [
    AlgorithmCase("fedprox", FedProx(replace(SGD, proximal=0.1), STEP, DENSE, DENSE), dense, world.with_batch_norm),
    AlgorithmCase("fedprox-topk", FedProx(replace(SGD, proximal=0.1), STEP, REMEMBERED, DENSE), topk),
    AlgorithmCase("fedprox-svrg", FedProx(replace(SVRG, proximal=0.5), STEP, RANDK, DENSE), None),
    AlgorithmCase("scaffold", Scaffold(SGD, STEP, DENSE), _two_dense, world.with_batch_norm),
    AlgorithmCase("scaffold-topk", Scaffold(SGD, STEP, TOPK, "I"), _two_topk),
    AlgorithmCase("scaffold-randk", Scaffold(SVRG, ServerSgd(0.5), RANDK), None),
    AlgorithmCase("scaffold-beside", Scaffold(FIXED, STEP, world.spared(QSGD7)), None, world.with_batch_norm),
    AlgorithmCase("scallion", Scallion(FIXED, STEP, TOPK, DENSE), _one_topk, world.with_batch_norm),
    AlgorithmCase("scallion-mean", Scallion(SGD, STEP, TOPK, REMEMBERED), _topk_both_ways),
    AlgorithmCase(
        "scallion-randk", Scallion(SGD, STEP, RANDK, DENSE, sends="mean_update"), None, world.with_batch_norm
    ),
    AlgorithmCase("scallion-permk", Scallion(FIXED, STEP, PERMK, DENSE), None, participation=world.FULL),
    AlgorithmCase("feddyn", FedDyn(SGD, DENSE), dense, world.with_batch_norm),
    AlgorithmCase("feddyn-topk", FedDyn(SGD, TOPK), topk),
    AlgorithmCase(
        "feddyn-samples", FedDyn(SGD, TOPK, 0.5, "samples"), topk, world.with_batch_norm, participation=world.FULL
    ),
]

test_algorithm = suite(CASES)
